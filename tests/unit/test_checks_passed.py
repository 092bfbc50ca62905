"""What is remembered of a pass, and the table that it makes."""

import json
import subprocess
import sys
from datetime import date

import pytest

from kqlib.errors import NotAllowed
from kqlib.runtime import places
from kqlib.workshop import memory
from kqlib.workshop.checks import check, predict, progress, progress_table
from kqlib.workshop.replay import replay
from tests.patience import WAIT
from tests.unit.checks_examples import right, stub
from tests.unit.cli.conftest import run

pytestmark = pytest.mark.usefixtures("solutions")


def remembered():
    return json.loads((places.state() / "progress.json").read_text())


def test_a_pass_is_remembered_with_its_first_day_and_a_later_failure_does_not_unlearn(monkeypatch):
    check("01.1", stub)
    assert not (places.state() / "progress.json").exists()
    assert check("01.1", right).passed
    assert remembered() == {"passed": {"01.1": date.today().isoformat()}}
    later = type("later", (date,), {"today": lambda: date(2099, 1, 1)})
    monkeypatch.setattr(progress_table, "date", later)
    assert not check("01.1", stub).passed
    assert check("01.1", right).passed
    assert check("02.1", lambda: True).passed
    assert remembered() == {"passed": {"01.1": date.today().isoformat(), "02.1": "2099-01-01"}}


def test_a_replay_runs_our_answers_and_notes_no_pass():
    names = {"check": check, "right": right}
    replay("any", [("verdict = check('01.1', right)", False)], names)
    assert names["verdict"].passed
    assert not (places.state() / "progress.json").exists()


def test_progress_is_a_table_by_notebook_without_names_or_days(solutions):
    check("01.1", right)
    check("02.1", lambda: True)
    assert repr(progress()) == (
        "notebook                    exercises  predictions  minutes\n"
        "01-topics                   1/3\n"
        "02-partitions-and-replicas  1/1 ✓\n"
        "all                         2/4"
    )
    page = [{"cell_type": "code", "source": "kq.predict('01.typo', 'a', 'b')\nkq.predict(\n    \"01.mix\", 1, 2)"}]
    (solutions.parent / "01-topics.ipynb").write_text(json.dumps({"cells": page}))
    predict("01.mix", 1, 2).choose("2")
    memory.change(lambda done: done.minutes.update({"01": 41.4, "02": 0.3}))
    assert repr(progress()).splitlines()[1:] == [
        "01-topics                   1/3        1/2          41 min",
        "02-partitions-and-replicas  1/1 ✓",
        "all                         2/4        1/2          42 min",
    ]


def test_progress_without_any_exercise_claims_nothing(solutions):
    for path in solutions.iterdir():
        path.unlink()
    assert repr(progress()).split() == ["notebook", "exercises", "predictions", "minutes", "all", "0/0"]


def test_several_peoples_files_become_one_table_with_a_column_a_person(monkeypatch, tmp_path, capsys):
    day = date.today().isoformat()
    for user, passes in {
        "ana": [("01.1", right), ("02.1", lambda: True)],
        "ben": [],
        "cy": [("02.1", lambda: True)],
    }.items():
        monkeypatch.setenv("KQ_STATE", str(tmp_path / f"state-{user}"))
        monkeypatch.setattr("getpass.getuser", lambda user=user: user)
        for which, answer in passes:
            check(which, answer)
        (tmp_path / f"{user}.json").write_text(progress().as_json())
    assert json.loads((tmp_path / "ana.json").read_text()) == {
        "people": [{"user": "ana", "passed": {"01.1": day, "02.1": day}}]
    }
    merged = progress(files=[tmp_path / "ana.json", str(tmp_path / "ben.json")])
    table = (
        "notebook                    ana    ben\n"
        "01-topics                   1/3    0/3\n"
        "02-partitions-and-replicas  1/1 ✓  0/1\n"
        "all                         2/4    0/4"
    )
    assert repr(merged) == table
    (tmp_path / "both.json").write_text(merged.as_json())  # what was merged merges again
    assert repr(progress(files=[tmp_path / "both.json"])) == table
    everyone = repr(progress(files=[tmp_path / "both.json", tmp_path / "cy.json"]))
    assert everyone.split("\n")[0].split()[1:] == ["ana", "ben", "cy"]
    (tmp_path / "both.json").unlink()
    with_minutes = json.loads((tmp_path / "ben.json").read_text())
    with_minutes["people"][0]["minutes"] = {"01": 12}
    (tmp_path / "ben.json").write_text(json.dumps(with_minutes))
    team = repr(progress(files=[tmp_path])).splitlines()
    assert team[1] == "01-topics                   1/3    0/3 · 12 min  0/3"
    assert run("progress", str(tmp_path)) == 0
    assert capsys.readouterr().out.splitlines()[-4:] == team
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotAllowed, match=r"^empty has no \*\.json"):
        progress(files=[tmp_path / "empty"])


def test_two_people_of_one_name_stay_two_columns(tmp_path):
    for stem in ("ana", "ben"):
        (tmp_path / f"{stem}.json").write_text('{"people": [{"user": "jov\\nyan", "passed": {}}]}')
    header = repr(progress(files=[tmp_path / "ana.json", tmp_path / "ben.json"])).split("\n")[0]
    assert header == "notebook                    jov yan (ana)  jov yan (ben)"


BROKEN = [
    "",
    "[]",
    "[" * 100_000,
    '{"passed": []}',
    '{"passed": {"01.1": 3}}',
    b"\xff\xfe",
    '{"passed": {}, "minutes": {"01": "x"}}',
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_file_that_is_no_progress_is_named_and_nothing_is_merged(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(
        NotAllowed, match=r"^x\.json is not what `kq progress --json` prints \(\w+\); nothing was merged"
    ):
        progress(files=[tmp_path / "x.json"])
    with pytest.raises(NotAllowed, match=r"^none\.json is not what .* \(No such file or directory\)"):
        progress(files=[tmp_path / "none.json"])


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_corrupt_memory_is_set_aside_with_a_notice_and_never_breaks_a_check(text):
    broken = text if isinstance(text, bytes) else text.encode()
    note = "note: progress.json could not be read; it is now progress.broken.json, and a new one begins"
    (places.state() / "progress.json").write_bytes(broken)
    verdict = check("01.1", right)
    assert verdict.passed
    assert verdict.text.splitlines()[2:] == [note]
    assert (places.state() / "progress.broken.json").read_bytes() == broken
    assert list(remembered()["passed"]) == ["01.1"]
    (places.state() / "progress.json").write_bytes(broken)
    assert repr(progress()).splitlines()[-1] == note
    assert repr(progress()).splitlines()[-1] == "all                         0/4"


def test_a_state_that_cannot_be_written_costs_a_line_and_not_the_check(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KQ_STATE", str(tmp_path / "file"))
    why = "File exists. Let KQ_STATE name a directory that you may write to"
    assert check("01.1", right).text.splitlines()[2:] == [f"note: this could not be remembered ({why})"]
    assert repr(progress()).splitlines()[-1] == f"note: what was done before could not be read ({why})"


def test_a_user_without_a_name_is_unnamed(monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert json.loads(progress().as_json()) == {"people": [{"user": "unnamed", "passed": {}}]}


def test_two_processes_that_pass_at_once_forget_nothing(tmp_path):
    code = """if True:
        import sys, time
        from kqlib.workshop import memory
        from kqlib.workshop.checks import remember
        read = memory._read
        memory._read = lambda: (read(), time.sleep(0.01))[0]  # long enough for the other one to come in between
        for n in range(20):
            assert remember(f"{sys.argv[1]}.{n}") == []
    """
    both = [subprocess.Popen([sys.executable, "-c", code, notebook]) for notebook in ("01", "02")]
    assert [process.wait(WAIT) for process in both] == [0, 0]
    assert len(remembered()["passed"]) == 40
    assert sorted(path.name for path in places.state().iterdir()) == ["progress.json", "progress.lock"]
