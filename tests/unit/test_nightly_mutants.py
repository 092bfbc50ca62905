"""Small faults in sources: each operator changes something that compiles; what was found."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.nightly import imports, mutants
from tests.nightly.mutate import OPERATORS, Mutant, compiles, mutants as of
from tests.nightly.run import Done

SOURCE = '''
"""0 and 1."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    OTHER = 3


@cache(4)
def größe(a: Literal[5], b=[7]) -> Literal[6]:
    """Not a < b."""
    assert a < b
    if a and b:
        a.b = not b
    while a:
        a += 1
        break
    print(f"{a + 1}", "%s" % a)
    if a < b or a is b:
        raise a * b
    return True
'''
EXPECTED = {
    ("comparison", "a < b", "(a <= b)"),
    ("comparison", "a is b", "(a is not b)"),
    ("boolean", "a and b", "(a or b)"),
    ("boolean", "a < b or a is b", "(a < b and a is b)"),
    ("arithmetic", "a * b", "(a // b)"),
    ("constant", "7", "0"),
    ("constant", "1", "0"),
    ("constant", "True", "False"),
    ("return", "return True", "return None"),
    ("delete", "a.b = not b", "pass"),
    ("delete", "a += 1", "pass"),
    ("delete", "break", "pass"),
    ("delete", 'print(f"{a + 1}", "%s" % a)', "pass"),
    ("delete", "raise a * b", "pass"),
    ("not", "not b", "(b)"),
    ("not", "a", "(not a)"),
}


def test_each_operator_changes_what_it_is_meant_to_and_leaves_alone_what_is_no_behaviour() -> None:
    assert {(each.operator, each.before, each.after) for each in of("x.py", SOURCE)} == EXPECTED
    assert {operator for operator, *_ in EXPECTED} == OPERATORS.keys()


@pytest.mark.parametrize("mutant", of("x.py", SOURCE), ids=str)
def test_each_mutant_is_another_source_that_compiles(mutant: Mutant) -> None:
    changed = mutant.applied(SOURCE)
    assert compiles(changed)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE))
    assert mutant.line in SOURCE.splitlines()[mutant.number - 1]
    assert mutant.scope in ("größe", "")


def test_the_same_seed_draws_the_same_mutants_and_all_of_them_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    some = of("kqlib/keys.py", (mutants.ROOT / "kqlib/keys.py").read_text(encoding="utf-8"))
    broken = replace(some[0], after="(")
    monkeypatch.setattr(mutants, "every", lambda: [*some, *[broken] * 50])
    monkeypatch.setattr(mutants, "SAMPLE", 20)
    first, again, other = mutants.drawn(1), mutants.drawn(1), mutants.drawn(2)
    assert first == again != other
    assert len({*first}) == 20
    assert broken not in {*first, *other}


def test_every_equivalent_that_is_listed_is_still_a_mutant_and_has_a_reason() -> None:
    sources = {one["path"]: (mutants.ROOT / one["path"]).read_text(encoding="utf-8") for one in mutants.listed()}
    there = [each for path, source in sources.items() for each in of(path, source)]
    reasons = [mutants.reason(each) for each in there]
    assert [one for one in mutants.listed() if not one["why"] or one["why"] not in reasons] == []


def test_the_reason_of_an_equivalent_is_given_for_no_other_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, *_ = of("x.py", SOURCE)
    monkeypatch.setattr(mutants, "listed", lambda: [{**asdict(one), "why": "it is the same"}])
    assert (mutants.reason(one), mutants.reason(other)) == ("it is the same", None)


# --- what a run found ------------------------------------------------------------------------------------------------
TESTS = {
    "test_b.py": "def test_passes():\n    pass",
    "test_a.py": "import pytest\n@pytest.mark.parametrize('x', ['1 - 2'])\ndef test_fails(x):\n    assert not x",
    "test_c.py": "import nothing_of_this_name",
    "test_d.py": "import time\ndef test_hangs():\n    time.sleep(60)",
}


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (["test_b.py", "test_a.py"], "test_a.py::test_fails[1 - 2]"),
        (["test_b.py", "test_c.py"], "test_c.py"),
        (["test_b.py", "test_d.py", "test_a.py"], "test_d.py::test_hangs"),
    ],
)
def test_the_test_that_fails_or_hangs_is_named_and_files_run_as_the_command_names_them(
    files: list[str], named: str, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).write_text(TESTS[name])
    last, hangs = tmp_path / "last", ["-o", "faulthandler_timeout=1", "-o", "faulthandler_exit_on_timeout=true"]
    options = ["-x", "-p", "tests.nightly.nearest", "-c", os.devnull, "--rootdir", str(tmp_path), *hangs]
    own = {"KQ_NIGHTLY_TEST": str(last), "PYTHONPATH": str(mutants.ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", *options, *files]
    ran = subprocess.run(command, cwd=tmp_path, env={**os.environ, **own}, capture_output=True, check=False)
    assert ran.returncode and last.read_text() == named


@pytest.mark.parametrize(
    ("found", "survived", "equivalent", "good", "words"),
    [
        (85, 15, 0, True, "85 of 100 mutants found (85%, at least 85% are to be), 0 equivalent"),
        (84, 16, 0, False, "84 of 100 mutants found (84%, at least 85% are to be), 0 equivalent"),
        (17, 3, 80, True, "17 of 20 mutants found (85%, at least 85% are to be), 80 equivalent"),
        (0, 0, 3, False, "0 of 0 mutants found, 3 equivalent"),
    ],
)
def test_enough_of_those_that_can_be_found_are_found(
    found: int, survived: int, equivalent: int, good: bool, words: str
) -> None:
    kinds = [*["found"] * found, *["survived"] * survived, *["equivalent"] * equivalent]
    assert mutants.judge({str(n): Done(kind) for n, kind in enumerate(kinds)}) == (good, words)


# --- which tests are near ---------------------------------------------------------------------------------------------

TREE = {
    "kqlib/__init__.py": 'LAZY = {"put": "kqlib.queue.put"}',
    "kqlib/__main__.py": "from kqlib.command import main",
    "kqlib/command/main.py": "def run():\n    import kqlib.queue.put",
    "kqlib/queue/__init__.py": "from .put import one",
    "kqlib/queue/put.py": "one = 1",
    "kqlib/alone.py": "",
    "tests/unit/test_put.py": "from kqlib import queue",  # far, but with its word
    "tests/unit/test_near.py": "import kqlib.queue.put",
    "tests/unit/test_typed.py": 'run(["kq", "put"])',
    "tests/spark/test_other.py": "import kqlib.queue.put",
}


def test_the_tests_of_a_module_are_those_that_lead_to_it_by_its_words_and_then_by_distance(tmp_path: Path) -> None:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = imports.graph(tmp_path)
    assert found["kqlib"] == found["kqlib.queue"] == found["kqlib.command.main"] == {"kqlib.queue.put"}
    near = [f"tests/unit/test_{name}.py" for name in ("put", "near", "typed")]
    assert imports.nearest(found, "kqlib.queue.put", tmp_path, "tests/unit") == near
    assert imports.nearest(found, "kqlib.alone", tmp_path, "tests") == []
