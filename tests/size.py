"""How large kqlib and its tests are: a table that `make check` prints. It never fails.

In:  the files of kqlib and tests. Out: for each part its lines that are not empty, its tokens (so that longer lines win nothing) and
the lines that it was planned to have.
"""

from __future__ import annotations

import sys
import tokenize
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLANNED = {
    "kqlib/queue": 3300,
    "kqlib/schemas": 900,
    "kqlib/share": 550,
    "kqlib/virtual": 2200,
    "kqlib/spark": 2000,
    "kqlib/command": 1200,
    "kqlib/runtime": 800,
    "kqlib/workshop": 5800,
    "kqlib/kafka and single files": 1050,
    "kqlib": 17800,
    "tests": 19000,
}
QUIET = {
    tokenize.ENCODING,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.COMMENT,
    tokenize.ENDMARKER,
}


def files(part: str) -> list[Path]:
    """The modules of a part of the table."""
    if part != "kqlib/kafka and single files":
        return sorted((ROOT / part).rglob("*.py"))
    return [*sorted((ROOT / "kqlib").glob("*.py")), *sorted((ROOT / "kqlib" / "kafka").rglob("*.py"))]


def size(those: Iterable[Path]) -> tuple[int, int]:
    """Their lines that are not empty, and their tokens."""
    lines = tokens = 0
    for file in those:
        more = size_of(file)
        lines, tokens = lines + more[0], tokens + more[1]
    return lines, tokens


@cache
def size_of(file: Path) -> tuple[int, int]:
    """One file's; it counts in its part and in the whole."""
    lines = sum(1 for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    with tokenize.open(file) as opened:
        return lines, sum(1 for token in tokenize.generate_tokens(opened.readline) if token.type not in QUIET)


def main() -> int:
    """Print the table."""
    print(f"{'part':30} {'lines':>7} {'tokens':>8} {'planned lines':>14}")
    for part, planned in PLANNED.items():
        lines, tokens = size(files(part))
        print(f"{part:30} {lines:7,} {tokens:8,} {planned:14,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
