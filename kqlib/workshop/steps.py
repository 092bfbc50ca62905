"""A program that grows through a notebook, step by step: the difference of each step, and the reader's own file.

In:  our steps, notebooks/steps/08_1.py, 08_2.py …, and the file into which the reader types them.
Out: `diff("08.2")` shows what step 2 changes; `take("08.2")` is the reader's program as a module.

The reader's file is 08_program.py beside the reader's copy of the notebook, in my/. What the reader typed is never lost:
`take` replaces only a file that is one of our steps. A notebook that is no reader's copy has no such file, and runs our steps.
"""

from __future__ import annotations

import difflib
import linecache
import re
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from kqlib.errors import NotAllowed
from kqlib.runtime import places
from kqlib.workshop.checks.code import Source

HEAD = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")
PLACE = re.compile(r"( *)(?:class|def) (\w+)")


class Diff(Source):
    """What a step changes, coloured wherever markdown is."""

    language: ClassVar[str] = "diff"


def diff(which: str) -> Diff:
    """What a step changes in the step before it: `kq.diff("08.2")`. Lines with - go, lines with + come."""
    old, new = (text.splitlines() for text in (_text(_before(which)), _text(which)))
    shown = []
    for line in list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]:
        head = HEAD.match(line)
        shown.append(f"@@ {_place(new, int(head[1]) + 1)}" if head else line)
    return Diff("\n".join(shown))


def take(which: str, replace: bool = False) -> ModuleType:
    """Take a step into your file, and return your program: `step = kq.take("08.2")`.

    A file that you changed is kept and used as it is. replace: put our step there; yours is kept beside it.
    """
    ours, file = _text(which), _readers_file(which)
    mine = file.read_text(encoding="utf-8") if file and file.exists() else ""
    own = bool(mine.strip()) and mine.rstrip() not in {_text(each).rstrip() for each in _steps(which)}
    if file and own and not replace:
        print(f"{file.name} is your own, and it is used as it is. kq.take({which!r}, replace=True) takes our step")
        return _module(file)
    if file:
        if own:
            file.replace(file.with_suffix(".before.py"))
        places.write_atomic(file, ours)
    print(f"{which[:2]}_program.py: step {which[3:]} of {len(_steps(which))}, {len(ours.splitlines())} lines")
    return _module(file or _file(which))


def _module(file: Path) -> ModuleType:
    """The program as a module. It is in no list of modules, so that its classes travel to other processes with their code."""
    linecache.checkcache(str(file))
    module = ModuleType(f"{file.parent.name}.{file.stem}")
    module.__file__ = str(file)
    exec(compile(file.read_text(encoding="utf-8"), file, "exec", dont_inherit=True), vars(module))
    return module


def _place(lines: list[str], number: int) -> str:
    """The class and the function of a line, counted from 1."""
    names: dict[int, str] = {}
    for line in lines[:number]:
        if found := PLACE.match(line):
            names = {at: name for at, name in names.items() if at < len(found[1])} | {len(found[1]): found[2]}
    return ".".join(names.values()) or "the first lines"


def _readers_file(which: str) -> Path | None:
    """The reader's file; None if this notebook is no reader's copy."""
    repo, here = places.repo(), Path.cwd()
    return here / f"{which[:2]}_program.py" if repo and here == repo / "my" else None


def _steps(which: str) -> list[str]:
    """The steps of a notebook, in their order."""
    repo = places.repo()
    files = (repo / "notebooks" / "steps").glob(f"{which[:2]}_*.py") if repo else ()
    return sorted(f"{file.stem[:2]}.{file.stem[3:]}" for file in files)


def _before(which: str) -> str:
    """The step before."""
    steps = _steps(which)
    at = steps.index(which) if which in steps else 0
    if not at:
        raise NotAllowed(f"there is no step before {which!r}; there are {', '.join(steps) or 'none'}")
    return steps[at - 1]


def _text(which: str) -> str:
    """The text of one of our steps."""
    return _file(which).read_text(encoding="utf-8")


def _file(which: str) -> Path:
    """The file of one of our steps."""
    repo = places.repo()
    if repo is None or which not in _steps(which):
        raise NotAllowed(f"there is no step {which!r}; there are {', '.join(_steps(which)) or 'none'}")
    return repo / "notebooks" / "steps" / f"{which[:2]}_{which[3:]}.py"
