"""The shape of every notebook: header, set-up, a core that fits in one sitting, exercises, three closing sections.

In: a notebook and the folder it lies in. Out: findings. NOTEBOOKS' words for the same: 'The shape of one'.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from kqlib.workshop.copies import SOLVED

from .page import Cell, Page, Wrong

CORE_CELLS, ALL_CELLS, CELL_LINES = 18, 34, 25
CLOSING = ("What you saw", "Where it lives", "At work")
_NAME = re.compile(r"\d\d-[a-z0-9-]+\.ipynb")
_TITLE = re.compile(r"# [^:\n]+: [^\n]+, by [^\n]+")
_BULLET = re.compile(r"^\s{0,3}(?:[-*+]|\d+\.) +\S", re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|\b(?:href|src)=[\"']([^\"']+)[\"']")
_FENCED = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_CHECK = re.compile(r"""\bkq\.check\(\s*["']([^"']+)["']""")
_PREDICTIONS = re.compile(r"\s*(?:kq\.predict(?:ed)?\([^()]*\)\s*)+")  # a cell of nothing else is no step of its own
_PREDICT = re.compile(r"""\bkq\.(predict|predicted)\(\s*(?:["']([^"']+)["'])?""")
_EXERCISE_CELL = re.compile(r"\bkq\.(?:check|hint|solution)\(|#\s*your turn\b", re.IGNORECASE)


def shape(page: Page) -> Iterator[Wrong]:
    """Everything about the shape."""
    for rule in RULES:
        yield from rule(page)


def name(page: Page) -> Iterator[Wrong]:
    """The file's name gives the order of reading."""
    if not _NAME.fullmatch(page.path.name):
        yield None, "the file is not named like 03-keys.ipynb", "rename it"


def _head(page: Page) -> list[Cell]:
    """The cells before the first code cell."""
    first = page.code[0].number if page.code else len(page.cells) + 1
    return [cell for cell in page.prose if cell.number < first]


def _section(text: str, title: str) -> str | None:
    """What stands under '## title' or '*title*', up to the next of either; None when there is no such place."""
    start = re.search(rf"^(?:#+ +\**|\*{{1,2}}){re.escape(title)}\b", text, re.MULTILINE)
    if not start:
        return None
    rest = text[start.end() :]
    end = re.search(r"^(?:#+ |\*{1,2}[A-Z][\w ]*\*)", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def header(page: Page) -> Iterator[Wrong]:
    """Title, what you will do, how long, what you need."""
    head = _head(page)
    text = "\n".join(cell.source for cell in head)
    top = head[0] if head else None
    if not page.cells or top is not page.cells[0] or not _TITLE.match(text):
        yield top, "it does not start with '# Title: the result, by the means'", "write that line first"
    bullets = _BULLET.findall(_section(text, "You will") or "")
    if not 3 <= len(bullets) <= 5:
        yield top, f"*You will* with {len(bullets)} bullets", "list 3 to 5 above the first code cell"
    if not re.search(r"\d+ ?min", _section(text, "Time") or ""):
        yield top, "no *Time* in minutes", "say honestly how long it takes, exercises included"
    if _section(text, "You need") is None:
        yield top, "no *You need*", "say which notebooks come before, or 'nothing'"


def neighbours(page: Page) -> Iterator[Wrong]:
    """The way back and the way on."""
    road = sorted(path.name for path in page.path.parent.glob("[0-9][0-9]-*.ipynb"))
    if page.path.name not in road:
        return
    here, head = road.index(page.path.name), _head(page)
    targets = {Path(target).name for cell in head for target in _targets(cell.source)}
    for step, other in (("previous", here - 1), ("next", here + 1)):
        if 0 <= other < len(road) and road[other] not in targets:
            top = head[0] if head else None
            yield top, f"no link to the {step} notebook", f"link to {road[other]} above the first code cell"


def set_up(page: Page) -> Iterator[Wrong]:
    """The first code cell is the same two lines everywhere; only the lab's options differ."""
    stem = page.path.stem
    if page.code and not _is_set_up(page.code[0].source, stem) and not stem.startswith("00-"):
        want = f"'import kqlib as kq' and 'lab = kq.lab(\"{stem}\")', with options where needed"
        yield page.code[0], "the first code cell is not the set-up", f"let it be exactly {want}"


def _is_set_up(source: str, stem: str) -> bool:
    try:
        lines = ast.parse(source).body
    except SyntaxError:
        return False
    if len(lines) != 2 or ast.unparse(lines[0]) != "import kqlib as kq":
        return False
    match lines[1]:
        case ast.Assign(
            targets=[ast.Name("lab")],
            value=ast.Call(func=ast.Attribute(ast.Name("kq"), "lab"), args=[ast.Constant(reported)]),
        ):
            return bool(reported == stem)
    return False


def _closing_start(page: Page) -> int:
    """The number of the first closing cell, or one past the end."""
    numbers = (cell.number for cell in page.prose if _section(cell.source, CLOSING[0]) is not None)
    return next(numbers, len(page.cells) + 1)


def sizes(page: Page) -> Iterator[Wrong]:
    """The core (what everybody needs: all before *Deeper*, without the exercises) and each cell fit."""
    deeper = (cell.number for cell in page.prose if re.search(r"^#+ .*\bDeeper\b", cell.source, re.MULTILINE))
    end = next(deeper, _closing_start(page))
    code = [cell for cell in page.code if not _PREDICTIONS.fullmatch(cell.source)]
    core = [cell for cell in code if cell.number < end and not _EXERCISE_CELL.search(cell.source)]
    if len(core) > CORE_CELLS:
        yield None, f"{len(core)} code cells before *Deeper*", f"keep the core to {CORE_CELLS}, without exercises"
    if len(code) > ALL_CELLS:
        yield None, f"{len(code)} code cells", f"keep to {ALL_CELLS}"
    for cell in page.code:
        if (lines := len(cell.source.splitlines())) > CELL_LINES:
            yield cell, f"{lines} lines of code", f"keep to {CELL_LINES}: split it, or move it into kqlib"


def exercises(page: Page) -> Iterator[Wrong]:
    """One to three, each with a stub, a check right after it and a stored '✗ not yet'; or steps that are stored solved."""
    number = page.path.name[:2]
    checks = [(cell, match[1]) for cell in page.code for match in _CHECK.finditer(cell.source)]
    if not checks and number != "00":
        yield None, "no exercise", f"add one that ends in kq.check('{number}.1', answer)"
    unsolved = [cell for cell, _ in checks if SOLVED not in cell.tags]
    if len(unsolved) > 3:
        yield unsolved[3], f"{len(unsolved)} exercises", "keep to 3"
    for order, (cell, reported) in enumerate(checks, 1):
        if reported != f"{number}.{order}":
            yield cell, f"exercise {reported!r} is number {order}", f"call it '{number}.{order}'"
        if not cell.node.execution_count:
            continue
        if SOLVED in cell.tags:
            if f"✓ {reported}" not in str(cell.outputs):
                yield cell, f"step {reported} is not stored solved", "put its solution there and run make notebooks"
        elif "✗ not yet" not in str(cell.outputs):
            yield cell, f"exercise {reported} is not stored unsolved", "put the stub back and run make notebooks"
    for cell in page.code:
        if re.search(r"#\s*your turn\b", cell.source, re.IGNORECASE):
            here_or_next = page.cells[cell.number - 1 :][:3]
            if not any(_CHECK.search(later.source) for later in here_or_next):
                yield cell, "'your turn' without kq.check after it", "let the next code cell check the answer"


def predictions(page: Page) -> Iterator[Wrong]:
    """A guess comes before its result, in an earlier cell; the result is one of the choices; *What you saw* ends with all of them."""
    calls = [(cell, *call) for cell in page.code for call in _PREDICT.findall(cell.source)]
    asked: dict[str, Cell] = {}
    for cell, verb, which in calls:
        if verb == "predict":
            if not which.startswith(f"{page.path.name[:2]}.") or which in asked:
                yield cell, f"prediction {which!r} of another notebook, or twice", "call it 'NN.word', once"
            asked[which] = cell
        elif which and (which not in asked or asked[which] is cell):
            yield cell, f"the result of {which!r} without a guess before it", "put kq.predict in a cell above"
    results = {which for _, verb, which in calls if verb == "predicted"}
    for which, cell in asked.items():
        if which not in results:
            yield cell, f"no result of {which!r}", f"add kq.predicted({which!r}, result) after the experiment"
    if asked and "" not in results:
        yield None, "no kq.predicted()", "end *What you saw* with it, in a cell of its own"
    for cell in page.code:
        if "none of the choices)" in str(cell.outputs):
            yield cell, "a result that is none of the choices", "give kq.predicted the text of a choice"


def computed(page: Page) -> Iterator[Wrong]:
    """No result beside a guess is typed: it comes from names that the experiment has set."""
    for cell in page.code:
        for result in _results(cell.source):
            names = {node.id for node in ast.walk(result) if isinstance(node, ast.Name)}
            if names <= set(vars(builtins)):
                yield cell, f"the typed result {ast.unparse(result)}", "compute it from what the cells before it saw"


def _results(source: str) -> Iterator[ast.expr]:
    """What the calls of `kq.predicted` in a cell are given as the result."""
    with suppress(SyntaxError):  # `source_rules` finds that
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Call(func=ast.Attribute(ast.Name("kq"), "predicted"), args=args, keywords=keywords):
                    yield from args[1:]
                    yield from (keyword.value for keyword in keywords if keyword.arg == "result")


def closing(page: Page) -> Iterator[Wrong]:
    """What you saw, where it lives, at work: in this order, at the end."""
    last_code = max((cell.number for cell in page.code if not _PREDICTIONS.fullmatch(cell.source)), default=0)
    text = "\n".join(cell.source for cell in page.prose if cell.number > last_code)
    places = [re.search(rf"^(?:#+ +\**|\*{{1,2}}){title}\b", text, re.MULTILINE) for title in CLOSING]
    for title, place in zip(CLOSING, places, strict=True):
        if place is None:
            yield None, f"no *{title}* after the last code cell", "close with " + ", ".join(CLOSING)
    starts = [place.start() for place in places if place]
    if starts != sorted(starts):
        yield None, "the closing sections are out of order", "close with " + ", ".join(CLOSING)
    will = len(_BULLET.findall(_section("\n".join(cell.source for cell in _head(page)), "You will") or ""))
    saw = len(_BULLET.findall(_section(text, "What you saw") or ""))
    if places[0] and saw != will:
        yield None, f"*What you saw* has {saw} bullets, *You will* {will}", "answer each of them"
    if places[1] and not any("kqlib/" in target for target in _targets(_section(text, "Where it lives") or "")):
        yield None, "*Where it lives* links to no module", "link to the files in ../kqlib/"


def _targets(source: str) -> list[str]:
    """What the links and pictures of a Markdown text point to; code in it does not count."""
    return [a or b for a, b in _LINK.findall(_FENCED.sub("", source))]


def links(page: Page) -> Iterator[Wrong]:
    """Links within the repository lead somewhere."""
    for cell in page.prose:
        for target in _targets(cell.source):
            path = unquote(target.split("#")[0])
            if re.match(r"(?:https?|mailto):", target) or not path:
                continue
            if not path.startswith("../") and not _NAME.fullmatch(path):
                yield cell, f"the link to {target!r} breaks in a reader's copy", "begin it with ../notebooks/"
            if path.startswith("/") or ":" in path or not (page.path.parent / path).exists():
                yield cell, f"the link to {target!r} leads nowhere", "point it at a file, relative to the notebook"


RULES = (name, header, neighbours, set_up, sizes, exercises, predictions, computed, closing, links)
