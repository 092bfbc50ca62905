"""What README.md and the how-tos tell a reader to type: their commands and Python, run as they stand, and what they print.

A command without an output on its page has only to succeed. An output is compared line by line, with these patterns masked.
A `text` block is the output of the Python before it, or, in the README's *Start*, what notebook 00 has stored.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from kqlib.kafka import Kafka
from tests.conftest import Marked

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "docs/queue.md",
    ROOT / "README.md",
    *sorted((ROOT / "docs/how-to").glob("*.md")),
]  # the first has the cluster
BLOCKS = [
    block
    for page in PAGES
    for block in re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
]
PYTHON = [text for language, text in BLOCKS if language == "python"]
PROGRAMS = [text for text in PYTHON if "def test_" not in text]
TESTS = [text for text in PYTHON if "def test_" in text]
SHOWN = {before[1]: text for before, (language, text) in pairwise(BLOCKS) if language == "text"}
MASKED = {  # what differs from run to run
    "a moment": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
    "an age": r"\b\d+ (s|min) ago",
}
THREE = "brokers=3"
NOT_RUN = {  # how the command begins, and why it is not run here
    "make lab": "it serves notebooks until it is ended",
    "make test": "this is a part of it",
    "kq crash": "tests/promises/test_crash.py runs it",
    "kq gameday": "tests/faults/test_gameday.py plays it",
    "kq kafka connect-": "tests/promises/test_connect_how_to.py runs it",
    "curl ": "it asks that Connect",
    "#": "it says what to do by hand",
    "kq kafka configs --alter --entity-type": "tests/promises/test_rotation.py changes passwords and certificates",
    "openssl ": "it asks for the changed certificate",
    "kq doctor": "tests/promises/test_cli.py runs it",
    'eval "$(kq up --brokers 3)"': "one cluster is enough for the commands; three brokers run below",
    "export KQ_": "a cluster of the reader's own",
    "kq pipeline audit": "tests/spark/test_audit.py runs it",
}
END = "\x1e"


def typed(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a block after their prompts, each with the output that is shown."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found[-1][0].endswith("\\"):
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        else:
            found[-1][1].append(line)
    yield from found


def commands() -> list[tuple[str, list[str]]]:
    """All commands of the pages, each once: those with a prompt first, for they start the cluster on which the others are tried."""
    prompted = [each for language, text in BLOCKS if language == "console" for each in typed(text)]
    plain = [(line, []) for language, text in BLOCKS if language == "sh" for line in text.splitlines()]
    once: dict[str, tuple[str, list[str]]] = {}
    for command, lines in prompted + plain:
        once.setdefault(re.sub(r"\s+#.*", "", command), (command, lines))
    return list(once.values())


def programs() -> list[tuple[str, list[str]]]:
    """The Python programs, each as a command with the output that is shown."""
    return [(f"python - <<'EOF'\n{text}EOF", SHOWN.get(text, "").splitlines()) for text in PROGRAMS]


def masked(line: str) -> str:
    """The line with what differs from run to run replaced by its name."""
    for name, pattern in MASKED.items():
        line = re.sub(pattern, f"<{name}>", line)
    return line.rstrip()


@pytest.fixture
def home(tmp_path: Path, marked: Marked) -> dict[str, str]:
    """The environment of a reader who has set up kqlib and has no cluster yet."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if name not in ("KQ_BOOTSTRAP", "KQ_SITE")}
    return {**kept, "PATH": path, "KQ_STATE": str(tmp_path / "state"), "PYTHONPATH": str(ROOT)}


def test_what_the_pages_say_to_type_prints_what_they_show(home: dict[str, str], tmp_path: Path) -> None:
    typed = [each for each in commands() if not each[0].startswith(tuple(NOT_RUN))]
    run = [*typed, *(each for each in programs() if THREE not in each[0]), ("kq down", [])]
    assert prints(run, home, tmp_path) > 10, "the pages show no output"


@pytest.mark.nightly  # three brokers; by day notebook 02 kills one of three
def test_what_the_pages_do_with_three_brokers_works(home: dict[str, str], tmp_path: Path) -> None:
    run = [each for each in programs() if THREE in each[0]]
    assert run and prints(run, home, tmp_path) == 0


def prints(run: list[tuple[str, list[str]]], home: dict[str, str], folder: Path) -> int:
    """Run them one after the other in one shell: each succeeds and prints what is shown. Of how many something is shown?"""
    tries = [command for command, _ in run]
    script = "\n".join(f"{{\n{each}\n}} 2>&1\necho {END}$?" for each in tries)
    ran = subprocess.run(["bash", "-c", script], cwd=folder, env=home, capture_output=True, text=True, check=False)
    outputs = re.split(rf"{END}(\d+)\n", ran.stdout)
    found = list(zip(tries, outputs[::2], map(int, outputs[1::2]), strict=False))
    assert len(found) == len(tries), ran
    shown = {command: [masked(line) for line in lines] for command, lines in run if lines}
    # 1, nothing done, only where the output is compared
    assert [one for one in found if one[2] > (one[0] in shown)] == []
    printed = {command: [masked(line) for line in output.splitlines()] for command, output, _ in found}
    assert {command: printed[command] for command in shown} == shown
    return len(shown)


def test_each_command_that_is_not_run_is_still_on_a_page() -> None:
    lines = [command for command, _ in commands()]
    assert [begin for begin in NOT_RUN if not any(line.startswith(begin) for line in lines)] == []


def test_what_the_readme_shows_after_make_lab_is_what_notebook_00_has_stored() -> None:
    cells = json.loads((ROOT / "notebooks/00-start-here.ipynb").read_text(encoding="utf-8"))["cells"]
    stored = ["".join(out.get("data", {}).get("text/plain", "")) for cell in cells for out in cell.get("outputs", [])]
    shown = [text for before, text in SHOWN.items() if before not in PYTHON]
    assert len(shown) == 1 and shown[0].rstrip() in stored


def test_the_tests_of_the_how_to_pass(kq_cluster: Kafka, home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("\n\n".join(TESTS))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:nbval", "test_mine.py"]
    own = {**home, "KQ_BOOTSTRAP": kq_cluster.bootstrap}
    ran = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines()[-1:] and re.fullmatch(r"2 passed in .*", ran.stdout.splitlines()[-1]), ran.stdout
