"""The gate: the rules that a stored notebook keeps, checked before anything is run.

    python -m tests.notebooks.gate [FILE…]       # all of notebooks/ without a FILE; prints findings, 1 if there are any

In: notebooks. Out: findings, `path: cell 7 [3]: what is wrong; what to do` (cell 7 of all, the third with code). nbval
compares outputs and nothing else: it passes over a cell without an execution count, and accepts a leak or a line on
stderr that comes again. What it cannot see is seen here.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.validator import iter_validate

from kqlib.workshop.copies import SOLVED

from .leaks import leaks
from .page import REPO, Finding, Page, Wrong, is_picture
from .shape import shape
from .stored import KERNEL, normalise, text

OUTPUT_LINES = 25
SOURCE_LINES = 80  # kq.source shows a function or a small class to be read; more than this is a file: link to it
LINE = 120  # a longer line wraps and counts as several
PICTURE_BYTES, FILE_BYTES = 100_000, 500_000  # larger ones make diffs and the first opening slow
IGNORED_SHARE = 0.05
IGNORING = {"nbval-ignore-output", "nbval-skip"}
TAGS = {"raises-exception", "readme", SOLVED, *IGNORING}  # readme: docs/road.md shows this cell's picture
_STEP = re.compile(r"step:[a-z0-9-]+")  # where kq.lab(…, at="name") can begin again
_COMMENT_MARK = re.compile(r"^\s*#\s*(?:NBVAL|PYTEST_VALIDATE)_\w+", re.MULTILINE)
_LIVE = re.compile(r"\b(?:interact\w*|clear_output|update_display|display_id|Output)\b")


def notebooks() -> list[Path]:
    """Every notebook of the pack, in reading order."""
    return sorted((REPO / "notebooks").glob("*.ipynb"))


def check(path: Path, raw: str | None = None) -> list[Finding]:
    """All findings in one file, or in what is about to become this file."""
    raw = path.read_text(encoding="utf-8") if raw is None else raw
    try:
        nb = nbformat.v4.reads(raw)  # nbformat.read and .validate would mend what is wrong with a cell's id
        why = next((str(error).splitlines()[0] for error in iter_validate(nb)), "")
    except (ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
    if why:
        return [Finding(path, "", f"not a valid notebook ({why})", "open and save it in JupyterLab")]
    found = findings(Page(path, nb))
    if not found and text(normalise(nb)) != raw:
        found = [Finding(path, "", "the file is not written as it is stored", "run make notebooks")]
    return found


def findings(page: Page) -> list[Finding]:
    """All findings in one valid notebook."""
    wrong = (one for rule in RULES for one in rule(page))
    return [Finding(page.path, cell.place if cell else "", what, do) for cell, what, do in wrong]


def format_rule(page: Page) -> Iterator[Wrong]:
    """nbformat 4.5 (cells have ids), the python3 kernel, known tags, and nothing that make notebooks would remove."""
    nb = page.nb
    if (nb.nbformat, nb.nbformat_minor) < (4, 5):
        yield None, f"nbformat {nb.nbformat}.{nb.nbformat_minor} has no cell ids", "save it in JupyterLab"
    if nb.metadata.get("kernelspec", {}).get("name") != KERNEL["name"]:
        yield None, "its kernel is not python3", "choose 'Python 3 (ipykernel)'"
    if nb.metadata != normalise(nb).metadata:
        yield None, "metadata beyond kernel and language", "run make notebooks"
    ids = [cell.node.get("id") for cell in page.cells]
    steps = [tag for cell in page.cells for tag in cell.tags]
    for cell, stored in zip(page.cells, normalise(nb).cells, strict=True):
        node = cell.node
        if not node.get("id") or ids.count(node.id) > 1:
            yield cell, "no id of its own", "give it one: a word that says what the cell is for"
        if node.cell_type == "raw":
            yield cell, "a raw cell", "make it Markdown or code"
        if unknown := [tag for tag in cell.tags if tag not in TAGS and not _STEP.fullmatch(tag)]:
            yield cell, f"unknown tag {unknown}", f"use only {sorted(TAGS)} and step:name"
        if twice := [tag for tag in cell.tags if tag.startswith("step:") and steps.count(tag) > 1]:
            yield cell, f"{twice[0]} is not the only step of this name", "give each step a name of its own"
        if node.metadata != stored.metadata or "attachments" in node:
            yield cell, "metadata beyond sorted tags, or an attachment", "run make notebooks"
        if node.get("outputs") != stored.get("outputs"):
            yield cell, "an output with a traceback, a widget's view, metadata or a split stream", "run make notebooks"


def counts(page: Page) -> Iterator[Wrong]:
    """Every code cell was run once, in order: nbval does not compare a cell that was not."""
    if all(cell.node.execution_count is None for cell in page.code):
        yield None, "it was never run", "run make notebooks"
        return
    for cell in page.code:
        if not cell.source.strip():
            yield cell, "an empty code cell", "delete it"
        elif cell.node.execution_count != cell.code:
            what = f"its execution count is {cell.node.execution_count}, not {cell.code}"
            yield cell, what, "run make notebooks (a cell without a count is not compared)"
        elif any(output.get("execution_count", cell.code) != cell.code for output in cell.outputs):
            yield cell, "its result has another count than the cell", "run make notebooks"


def errors(page: Page) -> Iterator[Wrong]:
    """A tag announces each error, and each tagged cell has one."""
    for cell in page.code:
        names = [output.ename for output in cell.outputs if output.output_type == "error"]
        tagged = "raises-exception" in cell.tags
        if names and not tagged:
            yield cell, f"an error that no tag announces ({names[0]})", "mend it, or tag the cell raises-exception"
        if tagged and not names:
            yield cell, "tagged raises-exception, but it raised nothing", "take the tag away, or let it fail"


def stderr(page: Page) -> Iterator[Wrong]:
    """stderr is empty."""
    for cell in page.code:
        if any(output.get("name") == "stderr" for output in cell.outputs):
            yield cell, "a line on stderr", "make its source quiet; do not hide it"


def source_rules(page: Page) -> Iterator[Wrong]:
    """The cells alone are a Python script, and nothing in them hides an output or prints into a live one."""
    for cell in page.code:
        try:
            ast.parse(cell.source)
        except SyntaxError:
            yield cell, "not plain Python (a magic, a ! line or a slip)", "the cells alone must run as a script"
            continue
        code = " ".join(_signs(cell.source))
        if code.endswith(";"):
            yield cell, "a trailing ';'", "it silences nothing under nbval: assign the value, or end with None"
        if mark := _COMMENT_MARK.search(cell.source):
            yield cell, f"the comment {mark[0].strip()!r}", "use the cell's tag: the gate counts tags"
        if live := _LIVE.search(code):
            yield cell, f"{live[0]!r} prints into a live output", "show one object with a text twin (kq.play)"
        if "sleep (" in code and re.search(r"\bsleep\([^#\n]*$", cell.source, re.MULTILINE):
            yield cell, "a bare sleep", "wait for a state with lab.until, or say on the line why there is none"


def _signs(cell_source: str) -> list[str]:
    """What a cell's code is made of, without strings and comments."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.STRING}
    signs = tokenize.generate_tokens(io.StringIO(cell_source).readline)
    return [sign.string for sign in signs if sign.type not in silent and sign.string.strip()]


def bare_widgets(page: Page) -> Iterator[Wrong]:
    """A widget alone leaves only its class name in a stored notebook."""
    for cell in page.code:
        for output in cell.outputs:
            data = output.get("data", {})
            word = re.match(r"([A-Za-z]\w*)\(", data.get("text/plain", ""))
            if word and word[1] in widget_names() and "text/html" not in data:
                yield cell, f"a bare widget ({word[1]})", "show an object with a picture and a text twin (kq.play)"


@cache
def widget_names() -> frozenset[str]:
    """The class names that a widget's repr starts with."""
    import ipywidgets

    kinds = vars(ipywidgets).items()
    return frozenset(name for name, kind in kinds if isinstance(kind, type) and issubclass(kind, ipywidgets.Widget))


def size(page: Page) -> Iterator[Wrong]:
    """What a cell shows can be read at a glance; a picture and shown source code have limits of their own."""
    for cell in page.code:
        lines = 0
        for output in cell.outputs:
            largest = max((len(str(value)) for value in output.get("data", {}).values()), default=0)
            if largest > PICTURE_BYTES:
                yield cell, f"an output of {largest:,} characters", f"keep to {PICTURE_BYTES:,}"
            code = output.get("data", {}).get("text/markdown", "")
            if _lines(code) > SOURCE_LINES:
                yield cell, f"{_lines(code)} lines of shown source", f"keep to {SOURCE_LINES}: show one function"
            table = "text/html" in output.get("data", {})  # a row is a line, however wide its words are in a terminal
            lines += len(_plain(output).splitlines()) if table else _lines(_plain(output))
        if lines > OUTPUT_LINES:
            yield cell, f"{lines} lines of output", f"keep to {OUTPUT_LINES}: show a count or the first few"
    whole = len(text(page.nb).encode())
    if whole > FILE_BYTES:
        yield None, f"{whole:,} bytes", f"keep to {FILE_BYTES:,}"


def _plain(output: NotebookNode) -> str:
    """The text that counts as lines: not a picture's twin (a reader sees the picture), not shown source."""
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    return "" if is_picture(output) or "text/markdown" in output.data else str(output.data.get("text/plain", ""))


def _lines(shown: str) -> int:
    return sum(1 + max(0, len(line) - 1) // LINE for line in shown.splitlines())


def ignored(page: Page) -> Iterator[Wrong]:
    """At most one cell in twenty is not compared."""
    cells = [cell for cell in page.code if IGNORING & set(cell.tags)]
    if len(cells) > IGNORED_SHARE * len(page.code):
        yield cells[0], f"{len(cells)} of {len(page.code)} code cells are not compared", "show facts with one value"


RULES: tuple[Callable[[Page], Iterator[Wrong]], ...] = (
    *(format_rule, counts, errors, stderr, source_rules, bare_widgets, size, ignored),
    *(leaks, shape),
)


def main(arguments: list[str]) -> int:
    """Print what the gate finds."""
    paths = [Path(argument) for argument in arguments] or notebooks()
    found = [finding for path in paths for finding in check(path)]
    print(*found, f"{len(paths)} notebooks, {len(found)} findings", sep="\n")
    return 1 if found or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
