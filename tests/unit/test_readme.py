"""What README, the other pages at the top, and the pages of docs/ name is there; the README is short, and its figures are measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kqlib.command.main import parsers
from tests.notebooks.pictures import pictures

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
WORDS = 900
MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_to_a_file(name: str) -> None:  # the site cannot show a directory
    page = ROOT / name
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).is_file()] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_make_target_that_is_named_exists(name: str) -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)\b", (ROOT / name).read_text(), re.MULTILINE))
    assert {target for target in named if f"\n{target}:" not in MAKEFILE} == set()


@pytest.mark.parametrize("name", PAGES)
def test_every_kq_command_that_is_named_exists(name: str) -> None:
    commands = parsers()[1]
    named = set(re.findall(r"(?:`|^|\()kq ([a-z]+)\b", (ROOT / name).read_text(), re.MULTILINE))
    assert named - set(commands) == set()


def test_every_notebook_is_on_the_road_with_its_picture() -> None:
    readme, road = (ROOT / "README.md").read_text(), (ROOT / "docs" / "road.md").read_text()
    for notebook in (ROOT / "notebooks").glob("[0-9][0-9]-*.ipynb"):
        assert f"(notebooks/{notebook.name})" in readme
        assert f"(../notebooks/pictures/{notebook.name[:2]}.svg)" in road


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= WORDS


def test_each_figure_of_the_readmes_costs_stands_in_the_page_of_costs() -> None:
    readme = (ROOT / "README.md").read_text().partition("## What it costs")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \w.*\d.*\|$", readme, re.MULTILINE)
    assert rows and [row for row in rows if row not in (ROOT / "docs" / "costs.md").read_text()] == []


def test_the_page_of_your_cluster_names_every_notebook_that_needs_the_embedded_one() -> None:
    """Those whose lab stops a broker, has a wire, or wants topics that appear by themselves. Others may be named too, as 04."""
    page = (ROOT / "docs" / "how-to" / "your-cluster.md").read_text()
    named = re.search(r"^Notebooks ([\d, and]+) need the embedded cluster", page, re.MULTILINE)
    code = {path.name[:2]: path.read_text() for path in (ROOT / "notebooks").glob("[0-9][0-9]-*.ipynb")}
    needs = {
        number
        for number, text in code.items()
        if ".broker(" in text or "auto_create=True" in text or re.search(r"kq\.lab\([^)]*wire=", text)
    }
    assert named and {"01", "02"} <= needs <= set(re.findall(r"\d\d", named[1]))


def test_the_readmes_pictures_are_the_notebooks_own() -> None:
    stored = {path: path.read_text(encoding="utf-8") for path in (ROOT / "notebooks" / "pictures").glob("*.svg")}
    assert stored == pictures()
