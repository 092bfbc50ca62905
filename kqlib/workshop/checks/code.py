"""Code to look at: the text of a function, class or module, below a line that says where it lives.

In:  a Python object, from the library, a solutions file or a notebook's cell. Out: a `Source`; its header names module
and object, never a directory of this machine, since notebooks store it.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import re
import sys
import textwrap
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from kqlib.errors import NotAllowed
from kqlib.workshop.checks.values import shown


@dataclass(frozen=True, repr=False)
class Text:
    """A text to read in a notebook: its repr is the text itself."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, repr=False)
class Source(Text):
    """Code: plain text in a terminal, highlighted wherever markdown is."""

    language: ClassVar[str] = "python"

    def _repr_markdown_(self) -> str:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", self.text)), default=0))
        return f"{fence}{self.language}\n{self.text}\n{fence}"


def source(obj: Any) -> Source:
    """The code of a function, class, method, property or module, as it is on this machine."""
    bare = _bare(obj)
    name = getattr(bare, "__qualname__", None) or getattr(bare, "__name__", None)
    if not isinstance(name, str):
        raise NotAllowed(f"kq.source shows functions, classes, methods, properties and modules; this is {shown(obj)}.")
    # since 3.13 inspect takes the lines of a class of __main__ from the program's file, not from the notebook's cell
    mine = isinstance(bare, type) and bare.__module__ == "__main__"
    try:
        text = (_class_text(bare) if mine else "") or inspect.getsource(bare)
    except (OSError, TypeError):
        text = _class_text(bare) if isinstance(bare, type) else ""
        if not text:
            why = "it is compiled, built in or made on the fly"
            raise NotAllowed(f"{name} has no Python source to show: {why}. help({name}) tells about it.") from None
    return Source(f"# {_whereabouts(bare, name)}\n{textwrap.dedent(text).strip()}")


def _bare(obj: Any) -> Any:
    """What a property or partial holds; `inspect` itself looks through methods and decorators."""
    if isinstance(obj, property):
        return obj.fget
    return obj.func if isinstance(obj, functools.cached_property | functools.partial) else obj


def _whereabouts(bare: Any, name: str) -> str:
    """'kqlib/topics.py · check_name': by the module's name, since a path would tell about this machine."""
    module = bare.__name__ if inspect.ismodule(bare) else bare.__module__
    if module == "__main__":
        return f"this notebook · {name}"
    package = hasattr(sys.modules.get(module), "__path__")
    file = module.replace(".", "/") + ("/__init__.py" if package else ".py")
    return file if inspect.ismodule(bare) else f"{file} · {name}"


def _class_text(bare: type) -> str:
    """A class's text from where inspect does not look: the file of its methods, or the notebook's cells; else ''."""
    files = [member.__code__.co_filename for member in vars(bare).values() if inspect.isfunction(member)]
    cells = getattr(sys.modules["__main__"], "In", []) if bare.__module__ == "__main__" else []
    for text in ["".join(linecache.getlines(file)) for file in files] + cells[::-1]:
        with suppress(SyntaxError):  # a cell with a %magic
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef) and node.name == bare.__name__:
                    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    return ""
