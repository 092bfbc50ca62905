"""What must never stand in a stored output: anything that is true only of one run or one machine.

In: a notebook. Out: a finding for each kind of leak in each cell. Names of users and hosts are not looked for: they are
ordinary words on someone's machine, and nbval on the next machine finds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .page import Page, Wrong, output_words

_UNIT = r"(?:ns|us|µs|ms|s|sec|secs|seconds?|min|minutes?|hours?)\b"

# name: (pattern, what to do). Example data that carries times lies before 2025; from then on a time is 'today'.
LEAKS: dict[str, tuple[str, str]] = {
    "an absolute path": (
        r"(?<![\w.~/-])/(?:home|root|Users|tmp|var|private|usr|opt|etc|mnt|proc|srv|run|work|workspace|app|content|nix)/[\w.@+-]+"
        r"|\b[A-Z]:\\\w+|\bfile:/",
        "show a name or a count instead",
    ),
    "a path in someone's home": (r"(?<![\w~])~/[\w.]", "show a name or a count instead"),
    "an object's address": (
        r"\bat 0x[0-9a-fA-F]+|\b0x[0-9a-fA-F]{9,}",
        "give the object a stable repr, or show a fact of it",
    ),
    "a host and port": (
        r"\b(?:localhost|\d{1,3}(?:\.\d{1,3}){3}|[A-Za-z][\w-]*(?:\.[\w-]+)*):(?:\d{4,5})\b|\[[0-9a-f:]*::[0-9a-f:]*\]:\d+",
        "ports differ at every start: show '127.0.0.1:…' or nothing",
    ),
    "a network address": (r"(?<![\d.])(?!127\.0\.0\.1\b)\d{1,3}(?:\.\d{1,3}){3}(?![\d.])", "leave it out"),
    "a date or time": (
        r"\b20(?:2[5-9]|[3-9]\d)-\d\d-\d\d"
        r"|(?<!\d{4}-\d\d-\d\d[T ])\b\d\d:\d\d:\d\d\b"
        r"|(?<![\d.])(?:17[4-9]|1[89]\d)\d{7}(?:\.\d+|\d{3}|\d{6}|\d{9})(?![\d.])",  # ten digits alone may be a hash
        "set the clock in the cell, to a time before 2025, or leave it out",
    ),
    "a uuid": (
        r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
        r"|(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[a-z])(?=[\w-]*[A-Z])[A-Za-z0-9_-]{22}(?![\w-])",  # Kafka's own, 22 of base64
        "ids of topics, members and clusters differ at every start: leave them out",
    ),
    "a client's log line": (r"%[0-7]\|\d+(?:\.\d+)?\|", "make the client quiet at its source"),
    "a process id": (r"(?i)\bpid\b\W{0,3}\d+", "leave it out"),
    "a duration": (
        rf"\b\d+\.\d+(?:e-?\d+)?\s?{_UNIT}|\b(?i:took|elapsed|in)\s+\d+\s?{_UNIT}|(?i:\bwall time)|(?i:\bcpu times)",
        "durations differ at every run: say whether it was within a bound",
    ),
    "a rate": (
        r"(?i)\d[\d.,]*\s?[kMG]?B?\s?(?:\w+\s?){0,2}(?:/s\b|/sec\b|per second\b)",
        "rates differ at every run: leave them out",
    ),
    "a version": (r"(?<![\w.])v?\d+\.\d+\.\d+(?![\w.])", "it changes with the next lock: leave it out"),
}
_LEAKS = {name: (re.compile(pattern), do) for name, (pattern, do) in LEAKS.items()}


def leaks(page: Page) -> Iterator[Wrong]:
    """One finding for each kind of leak in each cell, with the words that gave it away."""
    for cell in page.code:
        words = "\n".join(text for output in cell.outputs for text in output_words(output))
        for name, (pattern, do) in _LEAKS.items():
            if match := pattern.search(words):
                yield cell, f"{name} in its output ({match[0]!r})", do
