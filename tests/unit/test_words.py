"""Plain English in programs and pages: no house words, and no sentence in a docstring with more than 32 words.

`words_today.txt` has today's exceptions: house words, long sentences, file. Its figures may only become smaller, and
`python -m tests.unit.test_words` lowers them. A file that moved takes its line with it. In `table.py` it is the name of a
stored column. Plain meanings count as well: write 'no space is left' for 'no room is left'.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TODAY = Path(__file__).with_name("words_today.txt")
LONGEST = 32
FORBIDDEN = (
    *("crews?", "doors?", "hands", "heard", "houses?", "keepers?", "nearby", "nursery", "pens?", "rooms?"),
    *("said", "shelf", "shelves", "shops?", "somebody", "told", "wanted", "whoever"),
)
# `DoorKeeper`, `door_keeper` and 'a door' all have the word; 'outdoors' and 'OpenAPI' have not.
SMALL, LARGE = "|".join(FORBIDDEN), "|".join(map(str.capitalize, FORBIDDEN))
HOUSE_WORD = re.compile(rf"(?:(?<![A-Za-z])(?:{SMALL})|(?<![a-z])(?:{LARGE}))(?![a-z])|\bclass Line\b")
PAGES = (
    "CHANGELOG.md",
    "README.md",
    "docs/**/*.md",
    "data/**/*.md",
    "data/**/*.toml",
    "examples/**/*.go",
    "examples/**/*.md",
)
PROGRAMS = ("bench", "kqlib", "tests", "data", "examples", "notebooks/at_work")


def house_words(text: str) -> list[str]:
    """The house words of a text: in sentences, names, comments and messages."""
    return HOUSE_WORD.findall(text)


def docstrings(text: str) -> Iterator[str]:
    """The docstrings of a module, its classes and its functions."""
    ahead: list[ast.AST] = [ast.parse(text)]
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
        for part in ("body", "handlers", "cases", "orelse", "finalbody"):  # statements alone: a lambda's body is none
            more = getattr(node, part, ())
            ahead += more if isinstance(more, list) else ()


def long_sentences(text: str) -> list[str]:
    """The sentences with too many words. An empty line, an indented line and a point of a list begin a new one."""
    found = []
    for docstring in docstrings(text):
        for part in re.split(r"\n(?=\s|\n|- |\* |>>> |\w+: )", docstring):
            found += [each for each in re.split(r"[.!?]['\")`]*\s+", part) if len(each.split()) > LONGEST]
    return found


def found_today() -> dict[str, tuple[int, int]]:
    """Each file that has exceptions: how many house words, how many long sentences."""
    found = {}
    for pattern in (*(f"{part}/**/*.py" for part in PROGRAMS), *PAGES):
        for file in sorted(ROOT.glob(pattern)):
            text = file.read_text(encoding="utf-8")
            long = long_sentences(text) if file.suffix == ".py" else []
            found[file.relative_to(ROOT).as_posix()] = (len(house_words(text)), len(long))
    del found["tests/unit/test_words.py"]
    return {name: counts for name, counts in found.items() if any(counts)}


def allowed_today() -> dict[str, tuple[int, int]]:
    """The exceptions as they are listed."""
    rows = (row.split() for row in TODAY.read_text(encoding="utf-8").splitlines())
    return {name: (int(words), int(sentences)) for words, sentences, name in rows}


@pytest.mark.parametrize("text", ["class DoorKeeper:", "door_keeper = 1", "# Somebody", "'told'", "class Line:"])
def test_a_house_word_is_found_wherever_it_stands(text: str) -> None:
    assert house_words(text)
    assert house_words("outdoors, pending, OpenAPI, mushroom, a line, hand_out, LineEnd") == []


@pytest.mark.parametrize("cut", [" ", ". ", "\n", "\n\n", "\n- "])
def test_a_long_sentence_is_found_and_a_new_beginning_ends_one(cut: str) -> None:
    text = f'def f():\n    """{"word " * 20}{cut}{"word " * 20}"""'
    assert len(long_sentences(text)) == (1 if cut in " \n" else 0)


def test_no_file_has_more_house_words_or_long_sentences_than_its_exceptions() -> None:
    found, allowed = found_today(), allowed_today()
    over = {name for name, counts in found.items() if any(map(int.__gt__, counts, allowed.get(name, (0, 0))))}
    lines = [
        f"{name}: {house_words(text)} {long_sentences(text) if name.endswith('.py') else ''}"
        for name in sorted(over)
        for text in [(ROOT / name).read_text(encoding="utf-8")]
    ]
    assert not lines, "\n".join(["More than words_today.txt allows:", *lines])


if __name__ == "__main__":
    before = allowed_today() if TODAY.exists() else found_today()
    now = {name: counts for name, counts in found_today().items() if name in before}
    lines = [
        f"{min(words, before[name][0])} {min(long, before[name][1])} {name}\n" for name, (words, long) in now.items()
    ]
    TODAY.write_text("".join(lines), encoding="utf-8")
