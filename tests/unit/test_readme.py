"""What README, ARCHITECTURE, CONTRIBUTING and two pages of docs/ name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kqlib.command.main import parsers
from tests.notebooks.pictures import pictures

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/decisions.md", "docs/pipelines.md")
MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    page = ROOT / name
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert targets and [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_make_target_that_is_named_exists(name: str) -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)\b", (ROOT / name).read_text(), re.MULTILINE))
    assert {target for target in named if f"\n{target}:" not in MAKEFILE} == set()


@pytest.mark.parametrize("name", PAGES)
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
    """Those that stop a broker, have a wire, or want topics that appear by themselves. Others may be named too, as 04."""
    named = re.search(r"^([\d, and]+) need the embedded cluster", (ROOT / "README.md").read_text(), re.MULTILINE)
    code = {path.name[:2]: path.read_text() for path in (ROOT / "notebooks").glob("[0-9][0-9]-*.ipynb")}
    needs = {
        number
        for number, text in code.items()
        if ".broker(" in text or "auto_create=True" in text or "wire=True" in text
    }
    assert named and {"01", "02"} <= needs <= set(re.findall(r"\d\d", named[1]))


def test_the_readmes_pictures_are_the_notebooks_own() -> None:
    stored = {path: path.read_text(encoding="utf-8") for path in (ROOT / "notebooks" / "pictures").glob("*.svg")}
    assert stored == pictures()
