"""What README.md tells a reader to type: its commands and its Python, run as they stand there, and what it says they print.

A command without an output in README.md has only to end well. An output is compared line by line, with these patterns masked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kqlib.kafka import Kafka
from tests.conftest import Marked

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(
    r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
PYTHON = [text for language, text in BLOCKS if language == "python"]
MASKED = {  # what differs from run to run
    "a moment": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
    "an age": r"\b\d+ (s|min) ago",
}
NOT_RUN = {  # how the command begins, and why it is not run here
    "make lab": "it serves notebooks until it is ended",
    "make test": "this is a part of it",
    "kq crash": "tests/promises/test_crash.py runs it",
    "kq doctor": "tests/promises/test_cli.py runs it",
    'eval "$(kq up --brokers 3)"': "one cluster is enough for the commands; three brokers run below",
    "export KQ_": "a cluster of the reader's own",
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
    """All commands of README.md: those with a prompt first, for they start the cluster on which the others are tried."""
    prompted = [each for language, text in BLOCKS if language == "console" for each in typed(text)]
    return prompted + [(line, []) for language, text in BLOCKS if language == "sh" for line in text.splitlines()]


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


def test_what_the_readme_says_to_type_prints_what_it_shows(home: dict[str, str], tmp_path: Path) -> None:
    run = [each for each in commands() if not each[0].startswith(tuple(NOT_RUN))]
    queue = f"import kqlib as kq\ncluster = kq.connect()\n{PYTHON[1]}"
    tries = [*(command for command, _ in run), f"python - <<'EOF'\n{queue}EOF", "kq down"]
    script = "\n".join(f"{{\n{each}\n}} 2>&1\necho {END}$?" for each in tries)
    answer = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=home, capture_output=True, text=True, check=False)
    outputs = re.split(rf"{END}(\d+)\n", answer.stdout)
    found = list(zip(tries, outputs[::2], map(int, outputs[1::2]), strict=False))
    assert len(found) == len(tries), answer
    shown = {command: [masked(line) for line in lines] for command, lines in run if lines}
    assert [
        one for one in found if one[2] > (one[0] in shown)
    ] == []  # 1, a plain no, only where the output is compared
    printed = {command: [masked(line) for line in output.splitlines()] for command, output, _ in found}
    assert shown, "README.md shows no output"
    assert {command: printed[command] for command in shown} == shown


def test_each_command_that_is_not_run_is_still_in_the_readme() -> None:
    lines = [command for command, _ in commands()]
    assert [begin for begin in NOT_RUN if not any(line.startswith(begin) for line in lines)] == []


def test_the_readmes_first_program_runs_on_three_brokers(home: dict[str, str], tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PYTHON[0]], cwd=tmp_path, env=home, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr


def test_the_readmes_tests_pass(kq_cluster: Kafka, home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(f"from confluent_kafka import Producer\n\n\n{PYTHON[2]}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:nbval", "test_mine.py"]
    own = {**home, "KQ_BOOTSTRAP": kq_cluster.bootstrap}
    answer = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
    assert answer.stdout.splitlines()[-1:] and re.fullmatch(r"2 passed in .*", answer.stdout.splitlines()[-1]), (
        answer.stdout
    )
    assert len(PYTHON) == 3
