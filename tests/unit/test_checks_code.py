"""What code looks like when it is shown, and what has none to show."""

import functools
import json
import linecache
import sys

import confluent_kafka
import pytest

import kqlib.workshop.checks.code
from kqlib.errors import NotAllowed
from kqlib.workshop.checks import Case, source
from kqlib.workshop.checks.code import Source, Text
from tests.unit.checks_examples import Quiet


def plain(key):
    return key


@functools.wraps(plain)
def wrapping(*args):
    return plain(*args)


@functools.lru_cache
def cached(key):
    return key


class Box:
    def method(self):
        return 1

    @property
    def size(self):
        return 2

    @functools.cached_property
    def once(self):
        return 3

    @classmethod
    def make(cls):
        return cls()

    @staticmethod
    def fixed():
        return 4


PLAIN = "# tests/unit/test_checks_code.py · plain\ndef plain(key):\n    return key"


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (plain, PLAIN),
        (wrapping, PLAIN),
        (functools.partial(plain, 1), PLAIN),
        (cached, "# tests/unit/test_checks_code.py · cached\n@functools.lru_cache\ndef cached(key):\n    return key"),
        (Box.method, "# tests/unit/test_checks_code.py · Box.method\ndef method(self):\n    return 1"),
        (Box().method, "# tests/unit/test_checks_code.py · Box.method\ndef method(self):\n    return 1"),
        (Box.size, "# tests/unit/test_checks_code.py · Box.size\n@property\ndef size(self):\n    return 2"),
        (
            Box.once,
            "# tests/unit/test_checks_code.py · Box.once\n@functools.cached_property\ndef once(self):\n    return 3",
        ),
        (Box.make, "# tests/unit/test_checks_code.py · Box.make\n@classmethod\ndef make(cls):\n    return cls()"),
        (Box.fixed, "# tests/unit/test_checks_code.py · Box.fixed\n@staticmethod\ndef fixed():\n    return 4"),
        (
            Quiet,
            '# tests/unit/checks_examples.py · Quiet\nclass Quiet:\n    """A value whose repr tells its address."""',
        ),
    ],
)
def test_source_shows_a_definition_below_a_line_that_says_where_it_lives(obj, text):
    assert repr(source(obj)) == text


@pytest.mark.parametrize(
    ("obj", "header"),
    [
        (source, "# kqlib/workshop/checks/code.py · source"),
        (kqlib.workshop.checks, "# kqlib/workshop/checks/__init__.py"),
        (Text.__repr__, "# kqlib/workshop/checks/code.py · Text.__repr__"),
        (confluent_kafka.ThrottleEvent, "# confluent_kafka/__init__.py · ThrottleEvent"),
        (json, "# json/__init__.py"),
    ],
)
def test_the_header_names_module_and_name_and_no_directory_of_this_machine(obj, header):
    first, second = repr(source(obj)).split("\n")[:2]
    assert first == header
    assert second


@pytest.mark.parametrize(
    ("obj", "why"),
    [
        (
            confluent_kafka.Producer,
            "Producer has no Python source to show: it is compiled, built in or made on the fly. ",
        ),
        (len, "len has no Python source to show: "),
        (sys, "sys has no Python source to show: "),
        (str.join, "str.join has no Python source to show: "),
        (eval(compile("lambda: 1", "<made>", "eval")), "<lambda> has no Python source to show: "),
        (Case.__init__, "Case.__init__ has no Python source to show: "),
        (3, "kq.source shows functions, classes, methods, properties and modules; this is 3."),
        (
            Quiet(),
            "kq.source shows functions, classes, methods, properties and modules; this is <tests.unit.checks_examples.Quiet object>.",
        ),
    ],
)
def test_what_has_no_python_source_says_so(obj, why):
    with pytest.raises(NotAllowed) as caught:
        source(obj)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize(
    ("code", "fence"), [("def f(): ...", "```"), ('def f():\n    """```py```"""', "````"), ("'`'", "```")]
)
def test_source_is_a_fenced_block_where_markdown_is_shown(code, fence):
    assert Source(code)._repr_markdown_() == f"{fence}python\n{code}\n{fence}"


def test_a_function_and_a_class_from_a_notebook_cell_are_shown_too(monkeypatch):
    """A cell's text is in linecache under a made-up name, and in the notebook's list of cells."""
    new = "@dataclasses.dataclass\nclass Small:\n    n: int"
    function = "def twice(n):\n    return 2 * n"
    cells = ["class Small:\n    old = 1", f"import dataclasses\n\n\n{new}\n\n\nx = 1", "%matplotlib inline", function]
    names = {"__name__": "__main__"}
    for n, cell in enumerate(cells):
        if not cell.startswith("%"):
            linecache.cache[f"<cell {n}>"] = (len(cell), None, cell.splitlines(True), f"<cell {n}>")
            exec(compile(cell, f"<cell {n}>", "exec"), names)
    monkeypatch.setattr(sys.modules["__main__"], "In", cells, raising=False)
    assert repr(source(names["twice"])) == f"# this notebook · twice\n{function}"
    assert repr(source(names["Small"])) == f"# this notebook · Small\n{new}"
