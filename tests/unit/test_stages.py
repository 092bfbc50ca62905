"""How the test run takes a failure: at once, or after one more try where tests keep real time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.__main__ import FEW, PLAIN, passed

ONCE = """
import pathlib
def test_well(): pass
def test_now_and_then():
    told = pathlib.Path(__file__).with_name("told")
    before, _ = told.exists(), told.touch()
    assert before
"""
NEVER = "def test_wrong(): assert 0"
MANY = f"import pytest\n@pytest.mark.parametrize('n', range({FEW + 1}))\ndef test_wrong(n): assert 0"


@pytest.mark.parametrize(
    ("tests", "real", "found"),
    [
        ("def test_well(): pass", True, []),
        (ONCE, True, ["test_it.py::test_now_and_then"]),
        (ONCE, False, None),
        (NEVER, True, None),
        (MANY, True, None),
        ("import no_such_thing", True, None),
    ],
)
def test_a_failure_is_one_where_it_comes_again_or_time_is_no_excuse(
    tmp_path: Path, tests: str, real: bool, found: list[str] | None
) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(tests, encoding="utf-8")
    command = [*PLAIN, "-p", "xdist.plugin", "-n", "0", "--rootdir", str(tmp_path), "-c", os.devnull, str(file)]
    plain = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # a second of start less
    assert passed(command, real, tmp_path / "cache", plain) == found
