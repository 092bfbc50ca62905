"""What README, ARCHITECTURE and CONTRIBUTING say is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kqlib.__main__ import parsers
from tests.notebooks.pictures import pictures

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("name", TEXTS)
def test_every_link_leads_somewhere(name: str) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text())
    assert [target for target in targets if not (ROOT / target).exists()] == []


@pytest.mark.parametrize("name", TEXTS)
def test_every_make_target_that_is_named_exists(name: str) -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z]+)\b", (ROOT / name).read_text(), re.MULTILINE))
    assert {target for target in named if f"\n{target}:" not in MAKEFILE} == set()


@pytest.mark.parametrize("name", TEXTS)
def test_every_kq_command_that_is_named_exists(name: str) -> None:
    commands = parsers()[1]
    named = set(re.findall(r"(?:`|^|\()kq ([a-z]+)\b", (ROOT / name).read_text(), re.MULTILINE))
    assert named - set(commands) == set()


def test_every_notebook_is_on_the_readmes_road_with_a_picture() -> None:
    readme = (ROOT / "README.md").read_text()
    for notebook in (ROOT / "notebooks").glob("[0-9][0-9]-*.ipynb"):
        assert f"(notebooks/{notebook.name})" in readme
        assert f"(notebooks/pictures/{notebook.name[:2]}.svg)" in readme


def test_the_readme_names_every_notebook_that_needs_the_embedded_cluster() -> None:
    """Those that stop a broker, or want topics that appear by themselves. Others may be named too, as 04, whose sessions are short."""
    named = re.search(r"^([\d, and]+) need the embedded cluster", (ROOT / "README.md").read_text(), re.MULTILINE)
    code = {path.name[:2]: path.read_text() for path in (ROOT / "notebooks").glob("[0-9][0-9]-*.ipynb")}
    needs = {number for number, text in code.items() if ".broker(" in text or "auto_create=True" in text}
    assert named and {"01", "02"} <= needs <= set(re.findall(r"\d\d", named[1]))


def test_the_readmes_pictures_are_the_notebooks_own() -> None:
    stored = {path: path.read_text(encoding="utf-8") for path in (ROOT / "notebooks" / "pictures").glob("*.svg")}
    assert stored == pictures()


def test_every_room_is_in_the_architecture() -> None:
    """Each in its own part of the tree: other rooms have a node.py and a settings.py as well."""
    tree = (ROOT / "ARCHITECTURE.md").read_text().split("\nkqlib/\n")[1].split("\n```")[0]
    rooms = [path for path in (ROOT / "kqlib").iterdir() if path.name not in {"__pycache__", "py.typed"}]
    names = {path.name + "/" if path.is_dir() else path.name for path in rooms}
    assert missing(names, "\n".join(re.findall(r"^  \S.*", tree, re.MULTILINE))) == set()
    broker = re.split(r"\n  (?=\S)", tree.split("\n  broker/")[1])[0]
    assert missing({path.name for path in (ROOT / "kqlib" / "broker").glob("[a-z]*.py")}, broker) == set()


def missing(names: set[str], text: str) -> set[str]:
    """Those that are not in the text as whole names."""
    return {name for name in names if not re.search(rf"(?<![\w/]){re.escape(name)}", text)}
