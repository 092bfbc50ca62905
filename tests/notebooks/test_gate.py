"""The gate finds nothing in a good notebook, finds each planted fault, and finds nothing in the notebooks of this pack."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output, new_raw_cell

from tests.notebooks import gate, shape
from tests.notebooks.good import CLOSING, PICTURE, good, put
from tests.notebooks.leaks import LEAKS, leaks
from tests.notebooks.page import REPO, Page
from tests.notebooks.stored import WIDGET_VIEW, normalise, text

Fault = Callable[[NotebookNode], object]


def cell(nb: NotebookNode, name: str) -> NotebookNode:
    """The cell of this id."""
    return next(cell for cell in nb.cells if cell.id == name)


def edit(name: str, old: str, new: str) -> Fault:
    """A fault: other words in a cell's source."""

    def plant(nb: NotebookNode) -> None:
        assert old in cell(nb, name).source
        cell(nb, name).source = cell(nb, name).source.replace(old, new)

    return plant


def show(*outputs: NotebookNode, name: str = "say") -> Fault:
    """A fault: other outputs of a cell."""
    return lambda nb: cell(nb, name).update(outputs=list(outputs))


def printed(words: str, stream: str = "stdout") -> NotebookNode:
    return new_output("stream", name=stream, text=words)


def displayed(**kinds: str) -> NotebookNode:
    return new_output("display_data", data={kind.replace("_", "/"): value for kind, value in kinds.items()})


def meta(name: str, **metadata: object) -> Fault:
    return lambda nb: cell(nb, name).metadata.update(metadata)


def more_cells(count: int, *, before: str) -> Fault:
    """A fault: more code cells, numbered as if they had been run."""

    def plant(nb: NotebookNode) -> None:
        at = next(place for place, cell in enumerate(nb.cells) if cell.id == before)
        nb.cells[at:at] = [new_code_cell("a = 1", id=f"more-{n}") for n in range(count)]
        for number, code in enumerate((cell for cell in nb.cells if cell.cell_type == "code"), 1):
            code.execution_count = number
            for output in code.outputs:
                if "execution_count" in output:
                    output.execution_count = number

    return plant


def skipping(nb: NotebookNode) -> None:
    """One ignored cell among seven is more than one in twenty."""
    cell(nb, "say").metadata.tags = ["nbval-ignore-output"]


LINES_26 = "line\n" * 26
WIDGET = new_output("display_data", data={"text/plain": "VBox(children=(Button(),))"})
VIEW = new_output("display_data", data={"text/plain": "p", WIDGET_VIEW: {"model_id": "1"}})
TRACED = new_output("error", ename="ZeroDivisionError", evalue="division by zero", traceback=["File <cell>, line 1"])

# name of the fault: (how it is planted, what the finding says)
FAULTS: dict[str, tuple[Fault, str]] = {
    # comparison
    "a cell that was not run": (lambda nb: cell(nb, "say").update(execution_count=None), "execution count is None, not 2"),
    "a notebook that was never run": (
        lambda nb: [cell.update(execution_count=None) for cell in nb.cells if cell.cell_type == "code"],
        "it was never run",
    ),
    "cells run out of order": (lambda nb: cell(nb, "say").update(execution_count=9), "execution count is 9, not 2"),
    "a result of another run": (lambda nb: cell(nb, "draw").outputs[0].update(execution_count=9), "another count"),
    "an empty code cell": (edit("say", "print('3 consumers: 2+1+1')", ""), "an empty code cell"),
    "an error without a tag": (lambda nb: cell(nb, "fail").metadata.clear(), "an error that no tag announces"),
    "a tag without an error": (lambda nb: cell(nb, "fail").update(outputs=[]), "tagged raises-exception, but"),
    "a line on stderr": (show(printed("warning\n", "stderr")), "a line on stderr"),
    "a magic": (edit("say", "print", "%time print"), "not plain Python"),
    "a trailing semicolon": (edit("draw", "lab.draw()", "lab.draw();  # quiet"), "a trailing ';'"),
    "a comment that skips": (edit("say", "print", "# NBVAL_SKIP\nprint"), "the comment '# NBVAL_SKIP'"),
    "an interact": (edit("say", "print", "@interact\ndef f(): ...\nprint"), "prints into a live output"),
    "a cleared output": (edit("say", "print", "clear_output()\nprint"), "prints into a live output"),
    "a bare sleep": (edit("say", "print", "time.sleep(2)\nprint"), "a bare sleep"),
    "a bare widget": (show(WIDGET), "a bare widget (VBox)"),
    "a cell that shows too much": (show(printed(LINES_26)), "26 lines of output"),
    "one endless line": (show(printed("word " * 1000)), "42 lines of output"),
    "two outputs that are too much together": (show(printed("a\n" * 13), displayed(text_plain="a\n" * 13)), "26 lines"),
    "a whole file of source": (show(displayed(text_markdown="x\n" * 81)), "81 lines of shown source"),
    "a picture that weighs too much": (show(displayed(text_html=PICTURE + "x" * 100_000)), "an output of"),
    "a file that weighs too much": (
        lambda nb: nb.cells.extend(new_markdown_cell("word " * 20_000, id=f"m{n}") for n in range(6)),
        "keep to 500,000",
    ),
    "too many cells ignored": (skipping, "1 of 7 code cells are not compared"),
    # format
    "another kernel": (lambda nb: nb.metadata.kernelspec.update(name="py311"), "its kernel is not python3"),
    "the version of Python": (lambda nb: nb.metadata.language_info.update(version="3.11.7"), "beyond kernel and language"),
    "a cell's metadata": (meta("say", collapsed=True), "metadata beyond sorted tags"),
    "an unknown tag": (meta("say", tags=["hide-input"]), "unknown tag ['hide-input']"),
    "two steps of one name": (
        lambda nb: [cell(nb, name).metadata.update(tags=["step:lease"]) for name in ("say", "draw")],
        "step:lease is not the only step of this name",
    ),
    "a traceback": (show(TRACED, name="fail"), "an output with a traceback"),
    "a widget's view": (show(VIEW), "a widget's view"),
    "a split stream": (show(printed("a\n"), printed("b\n")), "a split stream"),
    "no cell ids": (
        lambda nb: (nb.update(nbformat_minor=4), [cell.pop("id") for cell in nb.cells]),
        "nbformat 4.4 has no cell ids",
    ),
    "two cells of one id": (lambda nb: cell(nb, "say").update(id="lab"), "no id of its own"),
    "a raw cell": (lambda nb: nb.cells.append(new_raw_cell("x", id="raw")), "a raw cell"),
    # shape
    "a title without means": (edit("header", ", by key", ""), "it does not start with"),
    "something before the title": (lambda nb: nb.cells.insert(0, new_markdown_cell("Hello", id="hi")), "does not start"),
    "two bullets only": (edit("header", "- see them mix\n", ""), "*You will* with 2 bullets"),
    "no time": (edit("header", "*Time*", "*Later*"), "no *Time*"),
    "no minutes": (edit("header", "10 minutes", "a while"), "no *Time* in minutes"),
    "no needs": (edit("header", "*You need*", "*Hm*"), "no *You need*"),
    "no way back": (edit("header", "00-start", "01-keys"), "no link to the previous notebook"),
    "no way on": (edit("header", "02-after", "01-keys"), "no link to the next notebook"),
    "another lab's name": (edit("lab", "01-keys", "keys"), "the first code cell is not the set-up"),
    "more in the set-up": (edit("lab", "lab =", "import os\nlab ="), "the first code cell is not the set-up"),
    "a long core": (more_cells(14, before="exercise"), "19 code cells before *Deeper*"),
    "a long notebook": (more_cells(28, before="closing"), "35 code cells"),
    "a long cell": (edit("say", "print", "a = 1\n" * 25 + "print"), "26 lines of code"),
    "no exercise": (edit("check", 'print(kq.check("01.1", answer))', "answer(1)"), "no exercise"),
    "an exercise of another notebook": (edit("check", "01.1", "02.1"), "exercise '02.1' is number 1"),
    "an exercise stored solved": (show(printed("✓ 01.1: 3 of 3\n"), name="check"), "not stored unsolved"),
    "an exercise whose verdict is not shown": (show(name="check"), "not stored unsolved"),
    "a step stored unsolved": (meta("check", tags=["solved"]), "step 01.1 is not stored solved"),
    "an exercise without a check": (edit("say", "print", "# your turn\nprint"), "'your turn' without kq.check"),
    "a fourth exercise": (
        edit("check", "print(", "".join(f'kq.check("01.{n}", answer)\n' for n in (1, 2, 3)) + "print("),
        "4 exercises",
    ),
    "a prediction of another notebook": (edit("say", "print", "kq.predict('02.mix', 1, 2)\nprint"), "'02.mix' of another notebook"),
    "a prediction without a result": (edit("say", "print", "kq.predict('01.mix', 1, 2)\nprint"), "no result of '01.mix'"),
    "predictions that are not shown at the end": (edit("say", "print", "kq.predict('01.mix', 1, 2)\nprint"), "no kq.predicted()"),
    "a result without a guess": (edit("say", "print", "kq.predicted('01.mix', 2)\nprint"), "without a guess before it"),
    "a guess and its result in one cell": (
        edit("say", "print", "kq.predict('01.mix', 1, 2)\nkq.predicted('01.mix', 2)\nprint"),
        "without a guess before it",
    ),
    "a typed result": (edit("say", "print", "kq.predicted('01.mix', 'two')\nprint"), "the typed result 'two'"),
    "a typed number": (edit("say", "print", "kq.predicted('01.mix', result=2)\nprint"), "the typed result 2"),
    "a typed text with numbers": (edit("say", "print", "kq.predicted('01.mix', f'{1 + 1} of 3')\nprint"), "the typed result f'"),
    "a typed result, wrapped": (edit("say", "print", "kq.predicted('01.mix', str(2))\nprint"), "the typed result str(2)"),
    "a result that was no choice": (show(printed("result: 3 (none of the choices)\n")), "none of the choices"),
    "no closing": (edit("closing", "## At work\nSet the partitioner.", ""), "no *At work*"),
    "closing out of order": (edit("closing", CLOSING, CLOSING[CLOSING.index("## Where") :] + "\n" + CLOSING), "out of order"),
    "a promise not answered": (edit("closing", "- they mixed\n", ""), "*What you saw* has 2 bullets, *You will* 3"),
    "no module": (edit("closing", "[keys](../kqlib/keys.py)", "keys"), "links to no module"),
    "a dead link": (edit("closing", "keys.py", "locks.py"), "the link to '../kqlib/locks.py' leads nowhere"),
    "a dead picture": (edit("closing", "Set", '<img src="gone.png"> Set'), "the link to 'gone.png' leads nowhere"),
    "a link out of the checkout": (edit("closing", "Set", "[x](/etc/hosts) Set"), "the link to '/etc/hosts'"),
    # leaks: one of each kind here, each spelling below
    **{f"{kind}": (show(printed(words)), kind) for kind, words in {
        "an absolute path": "/home/ana/kafka/logs",
        "a path in someone's home": "~/.cache/kqlib",
        "an object's address": "<Consumer object at 0x7f3a2b10>",
        "a host and port": "127.0.0.1:39201",
        "a network address": "192.168.1.7",
        "a date or time": "2026-11-21T10:00:00Z",
        "a uuid": "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
        "a client's log line": "%3|1763740000.123|FAIL|rdkafka#producer-1| refused",
        "a process id": "pid 4711",
        "a duration": "took 12 ms",
        "a rate": "1,300 items/s",
        "a version": "Kafka 4.3.1",
    }.items()},
}  # fmt: skip


def test_nothing_is_found_in_a_good_notebook(tmp_path: Path) -> None:
    assert gate.check(put(tmp_path, good())) == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    plant, reported = FAULTS[name]
    nb = good()
    plant(nb)
    found = [str(finding) for finding in gate.check(put(tmp_path, nb))]
    assert any(reported in one for one in found), found
    assert all(one.startswith(f"{tmp_path}/notebooks/01-keys.ipynb: ") and "; " in one for one in found)


def test_every_rule_and_every_kind_of_leak_has_a_planted_fault(tmp_path: Path) -> None:
    put(tmp_path, good())
    silent = {rule.__name__: rule for rule in (*gate.RULES, *shape.RULES)}
    for plant, _ in FAULTS.values():
        plant(nb := good())
        page = Page(tmp_path / "notebooks" / "01-keys.ipynb", nb)
        silent = {name: rule for name, rule in silent.items() if not list(rule(page))}
    assert set(silent) == {"name"}  # a file's name is no fault in a notebook: see below
    assert set(LEAKS) <= set(FAULTS)


BROKEN = {
    "not JSON": ("{", "not a valid notebook"),
    "not a notebook": ("[]", "not a valid notebook"),
    "not nbformat": (text(good()).replace('"cell_type": "code"', '"cell_type": "cod"'), "not a valid notebook"),
    "another layout of the file": (text(good()).replace('\n "cells"', '\n  "cells"'), "not written as it is stored"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_found(name: str, tmp_path: Path) -> None:
    raw, reported = BROKEN[name]
    (found,) = gate.check(put(tmp_path, raw))
    assert reported in found.what


def test_a_file_out_of_the_order_of_reading_is_found(tmp_path: Path) -> None:
    found = gate.check(put(tmp_path, good(), name="keys.ipynb"))
    assert "the file is not named like 03-keys.ipynb" in [finding.what for finding in found]


def svg(words: str, *, base64ed: bool = False) -> NotebookNode:
    drawing = f"<svg><text>{words}</text></svg>"
    body = f";base64,{base64.b64encode(drawing.encode()).decode()}" if base64ed else f",{quote(drawing)}"
    return displayed(text_html=f'<img alt="x" src="data:image/svg+xml{body}">')


LEAK = "/home/ana/logs"
PLACES = {
    "a printed line": printed(LEAK),
    "a result": displayed(text_plain=LEAK),
    "a picture's alt": displayed(text_html=f'<img alt="{LEAK}" src="x">'),
    "a picture's words": svg(LEAK),
    "a picture's words in base64": svg(LEAK, base64ed=True),
    "an inline drawing": displayed(**{"image_svg+xml": f"<svg><title>{LEAK}</title></svg>"}),
    "a table's title": displayed(text_html=f'<td title="{LEAK}">✓</td>'),
    "a link": displayed(text_html=f'<a href="file://{LEAK}">log</a>'),
    "Markdown": displayed(text_markdown=f"`{LEAK}`"),
    "an error": new_output("error", ename="OSError", evalue=LEAK, traceback=[]),
    "JSON": new_output("display_data", data={"application/json": {"dir": [LEAK]}}),
}


def leaks_in(output: NotebookNode) -> set[str]:
    nb = good()
    show(output)(nb)
    return {what.split(" in its output")[0] for _, what, _ in leaks(Page(Path("01-keys.ipynb"), nb))}


@pytest.mark.parametrize("name", PLACES)
def test_a_leak_is_found_wherever_a_reader_may_see_it(name: str) -> None:
    assert "an absolute path" in leaks_in(PLACES[name])


LEAKING = {
    "an absolute path": [r"C:\Users\ana", "see /tmp/kq-1/log", "'/var/lib/kafka'", "file:///x", "/opt/kafka/bin"],
    "an object's address": ["at 0x10ab", "0x7f3a2b10c0d0"],
    "a host and port": ["localhost:9092", "broker-1:19092", "kafka.example.com:9093", "[::1]:9092"],
    "a date or time": ["2026-11-21", "14:03:59", "1763740000123", "1763740000.25"],
    "a uuid": ["topic id MkU3OEVBNTcwNTJENDM2Qk", "1B4E28BA-2FA1-11D2-883F-0016D3CCA427"],
    "a process id": ["PID: 12", "pid=99"],
    "a duration": ["0.53 s", "12.1ms", "in 3 seconds", "Wall time: x", "elapsed 4 s"],
    "a rate": ["1.2 M rows/s", "40 MB/s", "300 records per second"],
    "a version": ["v2.16.0", "3.11.7"],
}
INNOCENT = [
    "football/3/41", "hash 0x9747b28c", "hash 2147483647", "hash 1763740000", "127.0.0.1:…", "session 45 s, lease 30 s",
    "Waited 2 s for the leader", "retention.ms=604800000", "2019-05-01T15:00:00Z", "1556722800000", "records: 1000",
    "3 consumers, 4 partitions: 2+1+1", "count and/or sum", "p0 A✓0 B✓1 |end", "TopicMissing: 'football' does not exist",
    "orders.eu-west_1.created", "acks=all: 10 of 10", "3/4", "half a page at 12:30", "rapid 12", "9 of 10 in 3 partitions",
    "https://kafka.apache.org/documentation", "offsets 0..9", "the_name_of_a_long_topic", "Kafka 4",
]  # fmt: skip


@pytest.mark.parametrize(("kind", "words"), [(kind, words) for kind in LEAKING for words in LEAKING[kind]])
def test_a_leak_is_found_in_each_spelling(kind: str, words: str) -> None:
    assert kind in leaks_in(printed(words))


@pytest.mark.parametrize("words", INNOCENT)
def test_a_fact_is_no_leak(words: str) -> None:
    assert leaks_in(printed(words)) == set()


def test_a_picture_s_styles_and_numbers_are_no_leak() -> None:
    assert leaks_in(displayed(text_html=PICTURE)) == set()


def test_the_stored_form_is_its_own_stored_form() -> None:
    assert normalise(good()) == good()


@pytest.mark.parametrize("path", gate.notebooks(), ids=lambda path: path.name)
def test_a_notebook_of_this_pack_passes(path: Path) -> None:
    found = gate.check(path)
    assert not found, "\n".join(map(str, found))


def test_the_minutes_of_a_notebook_are_the_same_in_the_readme_and_in_notebook_00() -> None:
    tables = {
        "README.md": r"\]\(notebooks/(.+?\.ipynb)\), (\d+) min",
        "notebooks/00-start-here.ipynb": r"\]\((\S+?\.ipynb)\) \| (\d+) \|",
    }
    stands = {
        path.name: re.search(r"\*Time\*: (\d+) minutes", path.read_text(encoding="utf-8"))[1]
        for path in gate.notebooks()
    }
    for file, pattern in tables.items():
        listed = dict(re.findall(pattern, (REPO / file).read_text(encoding="utf-8")))
        assert listed == {name: stands[name] for name in listed}, file
        assert len(listed) >= len(stands) - 1, f"{file} lists every notebook but its own"
