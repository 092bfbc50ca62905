"""Plain English and plain code in notebooks: forbidden words, long sentences, cells that ruff would format, long cells.

    python -m tests.notebooks.prose        # prints the figures and the mean length of a sentence; lowers prose_today.txt

In:  the stored notebooks, and `prose_today.txt` with today's exceptions, in this order.
Out: findings by notebook. The exceptions only shrink. The mean length is printed and not judged: chopped prose is no better.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import nbformat

from tests.unit.test_words import FORBIDDEN

from .gate import notebooks
from .page import Page
from .shape import CELL_LINES

TODAY = Path(__file__).with_name("prose_today.txt")
LONGEST = 32
NOT_PLAIN = re.compile(rf"\b(?:{'|'.join(FORBIDDEN)})\b", re.IGNORECASE)
_CODE = re.compile(r"```.*?```", re.DOTALL)
_INLINE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_PART = re.compile(
    r"\n\s*\n|\n(?=\s*(?:[-*+>|#]|\d+\.)\s?)|\|"
)  # a paragraph, a point of a list, a heading, a cell of a table
_END = re.compile(r"[.!?][*_'\"’)]*\s+")


def plain(markdown: str) -> str:
    """The words of a Markdown text: no code, no addresses. Code within a sentence counts as one word."""
    return _LINK.sub(r"\1", _INLINE.sub("code", _CODE.sub("\n\n", markdown)))


def sentences(markdown: str) -> Iterator[str]:
    """The sentences of a Markdown text."""
    for part in _PART.split(plain(markdown)):
        yield from filter(re.compile(r"\w").search, _END.split(part.strip()))


@dataclass(frozen=True)
class Found:
    """What a notebook has."""

    words: list[str]
    sentences: list[str]
    unformatted: list[str]  # a cell's place
    long: list[str]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(map(len, (self.words, self.sentences, self.unformatted, self.long)))


def formatted(paths: list[Path]) -> dict[str, Page]:
    """The same notebooks as ruff formats them."""
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            Path(folder, path.name).write_bytes(path.read_bytes())
        ruff = [str(Path(sys.executable).with_name("ruff")), "format", "--isolated", "--no-cache", "--line-length=120"]
        subprocess.run([*ruff, "--target-version=py311", "--quiet", folder], check=True)
        return {path.name: read(Path(folder, path.name)) for path in paths}


def read(path: Path) -> Page:
    """A notebook's cells."""
    return Page(path, nbformat.v4.reads(path.read_text(encoding="utf-8")))


def found(paths: list[Path]) -> dict[str, Found]:
    """What each notebook has, by its file's name."""
    pages = formatted(paths)
    every = {}
    for path in paths:
        page, better = read(path), pages[path.name]
        pairs = list(zip(page.code, better.code, strict=True))
        text = [cell.source for cell in page.prose]
        every[path.name] = Found(
            words=[word for source in text for word in NOT_PLAIN.findall(plain(source))],
            sentences=[each for source in text for each in sentences(source) if len(each.split()) > LONGEST],
            unformatted=[old.place for old, new in pairs if old.source != new.source],
            long=[new.place for _, new in pairs if len(new.source.splitlines()) > CELL_LINES],
        )
    return every


def allowed() -> dict[str, tuple[int, ...]]:
    """Today's exceptions."""
    rows = (row.split() for row in TODAY.read_text(encoding="utf-8").splitlines())
    return {row[-1]: tuple(map(int, row[:-1])) for row in rows}


def main() -> None:
    """Print the figures and lower the exceptions."""
    now = found(notebooks())
    before = allowed() if TODAY.exists() else {name: each.counts for name, each in now.items()}
    lines = []
    for path in notebooks():
        counts = now[path.name].counts
        lengths = [len(each.split()) for cell in read(path).prose for each in sentences(cell.source)]
        print(f"{path.name:34} {mean(lengths):4.1f} words a sentence; exceptions {counts}")
        least = tuple(map(min, counts, before.get(path.name, (0, 0, 0, 0))))
        lines += [f"{' '.join(map(str, least))} {path.name}\n"] if any(least) else []
    TODAY.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
