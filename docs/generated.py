"""The generated pages of the site: every public name from its docstring, every command from its parser, films without a kernel.

In:  kqlib, its parsers, the stored notebooks. Out: Markdown, and HTML for a film.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import kqlib as kq

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]-*.ipynb"))


# --- anchors ----------------------------------------------------------------------------------------------------------
def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def for_the_site(markdown: str) -> str:
    """The links to a notebook's heading: JupyterLab keeps the heading's letters, the site has them as GitHub does."""
    return re.sub(r"(\.ipynb#)([^)\s]+)\)", lambda found: f"{found[1]}{anchor(unquote(found[2]))})", markdown)


# --- every public name ------------------------------------------------------------------------------------------------
def lessons() -> dict[str, str]:
    """Where each public name is used first: a link to that section of a notebook."""
    found: dict[str, str] = {}
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        title, heading = "", ""
        for cell in cells:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                headings = re.findall(r"^#+ (.+)$", source, re.MULTILINE)
                title = title or headings[0]
                heading = headings[-1] if headings else heading
            else:
                link = f"[notebook {path.name[:2]}, {heading}](../notebooks/{path.name}#{anchor(heading)})"
                for name in re.findall(r"\bkq\.(\w+)", source):
                    found.setdefault(name, link)
    return found


def names() -> str:
    """Every public name of kqlib: its call, its docstring, and the notebook that teaches it."""
    taught = lessons()
    return "\n\n".join(part for name in kq.__all__ for part in _described(name, getattr(kq, name), taught.get(name)))


def _described(name: str, thing: Any, lesson: str | None) -> Iterator[str]:
    yield f"## kq.{name}"
    yield from _text(name, thing)
    if lesson:
        yield f"First used in {lesson}."
    for member, value in _members(thing):
        yield f"### {name}.{member}"
        yield from _text(f"{name}.{member}", value)


def _text(name: str, thing: Any) -> Iterator[str]:
    """How it is called, and its docstring."""
    if callable(thing):
        yield f"```python\n{name}{_signature(thing)}\n```"
    paragraphs = re.split(r"\n\s*\n", inspect.getdoc(thing) or "")
    for each in paragraphs:
        if each.startswith((">>>", "    ")):
            yield f"```text\n{each}\n```"
        else:
            yield _plain(each)


def _plain(text: str) -> str:
    """Text that Markdown shows as it is; code in backticks stays code."""
    parts = re.split(r"(`[^`\n]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\\*_\[\]<>#|~$])", r"\\\1", part) for part in parts)


def _signature(thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return "()"
    shown = [each.replace(annotation=each.empty) for each in signature.parameters.values() if each.name != "self"]
    text = re.sub(r"<class '([\w.]+)'>", r"\1", str(inspect.Signature(shown)))
    return re.sub(r"=<.*?>(?=[,)])|=Ellipsis", "=...", text)


def _members(thing: Any) -> Iterator[tuple[str, Any]]:
    """The public functions and classes of a module that are not names of kqlib themselves; what a class has to call and to read."""
    if isinstance(thing, ModuleType):
        known = [getattr(kq, name) for name in kq.__all__]
        for name in getattr(thing, "__all__", None) or sorted(vars(thing)):
            value = getattr(thing, name)
            ours = callable(value) and (getattr(value, "__module__", "") or "").startswith("kqlib.")
            if ours and not name.startswith("_") and value not in known:
                yield name, value
    elif isinstance(thing, type):
        for name in dir(thing):
            value = inspect.getattr_static(thing, name)
            shown = callable(value) or isinstance(value, property | classmethod)
            if shown and not name.startswith("_") and inspect.getdoc(value):
                yield name, getattr(thing, name) if isinstance(value, classmethod) else value


# --- every command ----------------------------------------------------------------------------------------------------
def commands() -> str:
    """What `kq COMMAND --help` prints, for each command and each of its words."""
    from kqlib.command.main import parsers

    return "\n\n".join(part for name, parser in parsers()[1].items() for part in _helped(f"kq {name}", parser))


def _helped(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    level = "#" * min(len(name.split()), 3)
    yield f"{level} {name}\n\n```text\n{parser.format_help().rstrip()}\n```"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, under in action.choices.items():
                yield from _helped(f"{name} {word}", under)


# --- notebooks ---------------------------------------------------------------------------------------------------------
def for_reading(notebook: str) -> str:
    """The notebook with one title, and with all frames in the output of each film: the stored output has the first one only."""
    page = json.loads(notebook)
    for cell in page["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and cell is not page["cells"][0]:
            cell["source"] = re.sub(r"^# ", "## ", source, flags=re.MULTILINE)
        elif found := re.search(r'kq\.view\.film\("(.+?)"\)', source):
            for output in cell.get("outputs", []):
                output["data"]["text/html"] = film(found[1])
    return json.dumps(page)


def film(name: str) -> str:
    """A film as HTML: its frames one below the other, until site.js shows one at a time."""
    shown = kq.view.film(name)
    frames = [f"<section>{shown.words(n)}{shown.pictures(n)}</section>" for n in range(1, len(shown.frames) + 1)]
    head = f'<div class="film" role="group" aria-label="{escape(shown.title)}"><p><b>{escape(shown.title)}</b></p>'
    return f"{head}{''.join(frames)}</div>"
