"""What the site has beyond its sources: names from their docstrings, commands from their parsers, films without a kernel, links.

In:  kqlib, its parsers, the stored notebooks. Out: Markdown, and HTML for a film.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import kqlib as kq

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]-*.ipynb"))
USED = re.compile(r"\bkq\.(\w+)(?:\.(\w+))?")  # a public name, or a member of a public module
FRAME = {"check", "hint", "lab", "predict", "predicted", "solution", "source", "view"}  # every notebook has them


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
                for name, member in USED.findall(source):
                    found.setdefault(name, link)
                    found.setdefault(f"{name}.{member}", link)
    return found


def names() -> str:
    """Every public name of kqlib: its call, its docstring, and the notebook that teaches it."""
    taught = lessons()
    return "\n\n".join(part for name in kq.__all__ for part in _described(name, getattr(kq, name), taught))


def _described(name: str, thing: Any, taught: dict[str, str]) -> Iterator[str]:
    yield f"## kq.{name}"
    yield from _text(name, thing)
    yield _where(thing, taught.get(name))
    for member, value in _members(thing):
        yield f"### {name}.{member}"
        yield from _text(f"{name}.{member}", value)
        if isinstance(thing, ModuleType):
            yield _where(value, taught.get(f"{name}.{member}"))


def _where(thing: Any, lesson: str | None) -> str:
    """Its code, and the notebook that teaches it."""
    file = _file(thing)
    return f"Code: [{file}](../{file})." + (f" First used in {lesson}." if lesson else "")


def _file(thing: Any) -> str:
    """The file that has it."""
    return Path(inspect.getsourcefile(inspect.unwrap(thing)) or "").relative_to(ROOT).as_posix()


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
    """The notebook with one title, links below its headings, and all frames in the output of each film (stored is the first)."""
    page = json.loads(notebook)
    link_sections(page["cells"])
    for cell in page["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and cell is not page["cells"][0]:
            cell["source"] = re.sub(r"(?m)(```[\s\S]*?```)|^# ", lambda found: found[1] or "## ", source)
        elif found := re.search(r'kq\.view\.film\("(.+?)"\)', source):
            for output in cell.get("outputs", []):
                output["data"]["text/html"] = film(found[1])
    return json.dumps(page)


def link_sections(cells: list[dict[str, Any]]) -> None:
    """Below the heading of each section: what its code uses of kqlib, in the reference and in the code."""
    names: dict[str, None] = {}  # of the cells below, each once
    for cell in reversed(cells):
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            names = dict.fromkeys(_used(source)) | names
        elif names and (headings := list(re.finditer(r"^## .+$", source, re.MULTILINE))):
            end = headings[-1].end()
            cell["source"] = f"{source[:end]}\n\n{_links(names)}{source[end:]}"
            names = {}


def _used(source: str) -> Iterator[str]:
    """What a cell uses: 'Plan', 'view.log'."""
    for name, member in USED.findall(source):
        if name in kq.__all__ and name not in FRAME:
            members = dict(_members(thing)) if isinstance(thing := getattr(kq, name), ModuleType) else {}
            yield f"{name}.{member}" if member in members else name


def _links(names: Iterable[str]) -> str:
    """The line of links: each name to its place in the reference, and to its code."""
    links = []
    for each in names:
        name, _, member = each.partition(".")
        thing = getattr(getattr(kq, name), member) if member else getattr(kq, name)
        place = f"../docs/names.md#{anchor(each if member else f'kq.{each}')}"
        links.append(f"[kq.{each}]({place}) ([code](../{_file(thing)}))")
    return f"*Reference*: {' · '.join(links)}"


def film(name: str) -> str:
    """A film as HTML: its frames one below the other, until site.js shows one at a time."""
    shown = kq.view.film(name)
    frames = [f"<section>{shown.words(n)}{shown.pictures(n)}</section>" for n in range(1, len(shown.frames) + 1)]
    head = f'<div class="film" role="group" aria-label="{escape(shown.title)}"><p><b>{escape(shown.title)}</b></p>'
    return f"{head}{''.join(frames)}</div>"
