"""The exercise of 00-start-here: how many connections a log in the middle leaves."""

from kqlib.workshop.checks import Case, Exercise


def with_a_log(writers: int, readers: int) -> int:
    return writers + readers


def without_a_log(writers: int, readers: int) -> int:
    return writers * readers


CONNECTIONS = Exercise(
    id="00.1",
    ask="each program talks to the log, and to nobody else",
    cases=[Case((4, 5), 9), Case((1, 1), 2), Case((40, 50), 90)],
    hints=("Count the lines on the right side of the picture.", "Every writer has one line, and every reader has one."),
    solution=with_a_log,
    wrong=(without_a_log,),
)
