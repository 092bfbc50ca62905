"""A small notebook in which the gate finds nothing, for tests that plant one fault in it."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from urllib.parse import quote

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from .stored import normalise, text

HEADER = """# Keys: keep a game's events in order, by key

*You will*
- write two games into one log
- see them mix
- give each its place

*Time*: 10 minutes

*You need*: [the first one](00-start.ipynb); then go on to [02](02-after.ipynb)."""

CLOSING = """## What you saw
- two games in one log
- they mixed
- a key gave each its place

## Where it lives
[keys](../kqlib/keys.py)

## At work
Set the partitioner."""

_DRAWING = '<svg viewBox="0 0 1024 64"><style>text{top:1024}</style><path d="M1.5 2.5s"/><text>A</text></svg>'
PICTURE = f'<img alt="two games" src="data:image/svg+xml,{quote(_DRAWING)}">'


def _result(count: int, **data: str) -> NotebookNode:
    kinds = {name.replace("_", "/"): value for name, value in data.items()}
    return new_output("execute_result", data=kinds, execution_count=count)


def _print(words: str, name: str = "stdout") -> NotebookNode:
    return new_output("stream", name=name, text=words)


def good() -> NotebookNode:
    """The notebook: 01-keys, with a printed line, an announced error, a picture, shown source and an exercise."""
    return copy.deepcopy(_made())


@cache
def _made() -> NotebookNode:
    """It is made once: nbformat validates each cell and each output as it is made, which takes longer than a rule."""
    error = new_output("error", ename="ZeroDivisionError", evalue="division by zero")
    tagged = {"tags": ["raises-exception"]}
    unsolved = _print("✗ not yet: answer(1) gave None, expected 2\n")
    check = 'print(kq.check("01.1", answer))'
    cells = [
        new_markdown_cell(HEADER, id="header"),
        new_code_cell('import kqlib as kq\n\nlab = kq.lab("01-keys", brokers=3)', id="lab"),
        new_code_cell(
            "print('3 consumers: 2+1+1')",
            id="say",
            outputs=[_print("3 consumers: 2+1+1\n")],
            metadata={"tags": ["step:say"]},
        ),
        new_code_cell("1 / 0", id="fail", outputs=[error], metadata=tagged),
        new_code_cell("lab.draw()", id="draw", outputs=[_result(4, text_plain="p0 A✓0\n" * 40, text_html=PICTURE)]),
        new_code_cell(
            "kq.source(lab)", id="code", outputs=[_result(5, text_plain="x\n" * 40, text_markdown="x\n" * 40)]
        ),
        new_markdown_cell("## Exercise\nDouble it.", id="exercise"),
        new_code_cell("def answer(n): ...  # your turn", id="answer"),
        new_code_cell(check, id="check", outputs=[unsolved]),
        new_markdown_cell(CLOSING, id="closing"),
    ]
    for count, cell in enumerate((cell for cell in cells if cell.cell_type == "code"), 1):
        cell.execution_count = count
    return normalise(new_notebook(cells=cells))


# What the notebook runs on in these tests: a module that shadows kqlib, since the gate and nbval need no Kafka to be tried.
STAGE = """
class Shown:
    def __init__(self, text, kind, more):
        self.text, self.more = text, {kind: more}

    def __repr__(self):
        return self.text

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": self.text, **self.more}

class lab:
    def __init__(self, name, brokers=1): ...

    def draw(self):
        return Shown("p0 A✓0\\n" * 40, "text/html", PICTURE)

def source(obj):
    return Shown("x\\n" * 40, "text/markdown", "x\\n" * 40)

def check(exercise, answer):
    return f"✗ not yet: answer(1) gave {answer(1)}, expected 2"
"""


def put(folder: Path, nb: NotebookNode | str, name: str = "01-keys.ipynb") -> Path:
    """Write it into a small checkout: neighbours before and after it, the module that it links to, its stage."""
    for other in ("notebooks/00-start.ipynb", "notebooks/02-after.ipynb", "kqlib/keys.py"):
        (folder / other).parent.mkdir(parents=True, exist_ok=True)
        (folder / other).touch()
    path = folder / "notebooks" / name
    path.with_name("kqlib.py").write_text(f"PICTURE = {PICTURE!r}\n{STAGE}", encoding="utf-8")
    path.write_text(nb if isinstance(nb, str) else text(nb), encoding="utf-8")
    return path
