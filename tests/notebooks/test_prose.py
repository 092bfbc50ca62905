"""The gate for prose and for the form of code: each rule finds a planted fault, and no notebook has more than its exceptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks import gate, glossary, prose

from .good import good
from .stored import text


def test_no_notebook_has_more_faults_than_its_exceptions() -> None:
    found, allowed = prose.found(gate.notebooks()), prose.allowed()
    none = (0, 0, 0, 0)
    over = [
        f"{name}: {each}" for name, each in found.items() if any(map(int.__gt__, each.counts, allowed.get(name, none)))
    ]
    assert not over, "\n".join(["More than prose_today.txt allows:", *over])


WORD = "cre" + "w"  # in one piece it would be found in this file
FAULTS = {
    "nothing": ("closing", "Set", "Set", (0, 0, 0, 0)),
    "words that are not plain": ("closing", "Set", f"{WORD.title()} sees a {WORD}. Set", (2, 0, 0, 0)),
    "such a word as code": ("closing", "Set", f"`{WORD}` Set", (0, 0, 0, 0)),
    "a long sentence": ("closing", "Set", "word " * 32 + "Set", (0, 1, 0, 0)),
    "two sentences": ("closing", "Set", "word " * 20 + "end. Set " + "word " * 20, (0, 0, 0, 0)),
    "a list": ("closing", "Set", "word " * 20 + "\n- " + "word " * 20 + "\n1. Set", (0, 0, 0, 0)),
    "a cell that ruff would change": ("say", "print", "x=1\nprint", (0, 0, 1, 0)),
    "a cell that is long when formatted": ("say", "print", f"x = [{'1, ' * 26}]\nprint", (0, 0, 1, 1)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    which, old, new, counts = FAULTS[name]
    nb = good()
    answer = next(each for each in nb.cells if each.id == "answer")
    answer.source = "def answer(n): ...  # your turn"
    planted = next(each for each in nb.cells if each.id == which)
    planted.source = planted.source.replace(old, new)
    say = next(each for each in nb.cells if each.id == "say")
    say.source = say.source.replace("'", '"')
    path = tmp_path / "01-keys.ipynb"
    path.write_text(text(nb))
    assert prose.found([path])[path.name].counts == counts


def test_the_glossary_has_the_definitions_of_today() -> None:
    assert glossary.PAGE.read_text(encoding="utf-8") == glossary.page(), "run python -m tests.notebooks.glossary"


def test_a_term_is_defined_by_the_first_sentence_that_emphasises_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nb = good()
    closing = next(each for each in nb.cells if each.id == "closing")
    closing.source += (
        "\n\n## Two words\n- Ask first. The *offsets*\n  are numbers. A **lag** | grows.\n\nAn *offset* again."
    )
    path = tmp_path / "01-keys.ipynb"
    path.write_text(text(nb))
    monkeypatch.setattr(glossary, "notebooks", lambda: [path])
    rows = glossary.page().removeprefix(glossary.HEAD).splitlines()
    assert rows[1] == "| [offset](../notebooks/01-keys.ipynb#Two-words) | The *offsets* are numbers. | 01, Two words |"
    assert len(rows) == 2
