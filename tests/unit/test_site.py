"""The site's sources, without building it: each page is in a table of contents, each link has its heading, each name its text.

`tests/browser/test_site.py` builds the site and looks at it, at night.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

import kqlib as kq
from tests import dependencies

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("data/*.md"), *ROOT.glob("notebooks/*.ipynb")]

spec = importlib.util.spec_from_file_location("generated", ROOT / "docs" / "generated.py")
assert spec and spec.loader
generated = sys.modules["generated"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generated)


@cache
def text(page: Path) -> str:
    """A page's Markdown, code left out; of a notebook, that of its cells."""
    read = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(read)["cells"]
        read = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(r"^```.*?^```$", "", read, flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of its headings."""
    return {generated.anchor(heading) for heading in re.findall(r"^#+ (.+)$", text(page), re.MULTILINE)}


def test_every_page_is_in_a_table_of_contents() -> None:
    trees = re.findall(r"```{toctree}\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.DOTALL)
    lines = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    names = [re.sub(r".*<(.*)>", r"\1", line) for line in lines]
    listed = {page for name in names for end in (".md", ".ipynb") for page in (ROOT / "docs").glob(f"{name}{end}")}
    assert {page.resolve() for page in listed} == set(PAGES) - {ROOT / "docs" / "index.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_heading_has_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]*\.(?:md|ipynb)|)#([^)\s]+)\)", text(page))
    missing = [
        f"{name}#{heading}"
        for name, heading in links
        if generated.anchor(unquote(heading)) not in anchors((page.parent / name).resolve() if name else page)
    ]
    assert missing == []


def test_every_command_has_its_help() -> None:
    lines = generated.commands().splitlines()
    assert {"## kq crash", "### kq queue work", "### kq pipeline audit", "### kq virtual serve"} <= set(lines)


@pytest.mark.nightly  # it imports all of kqlib and what that needs
def test_every_public_name_has_a_text_and_most_have_a_lesson() -> None:
    parts = dict(re.findall(r"^## kq\.(\w+)\n(.*?)(?=^## |\Z)", generated.names(), re.MULTILINE | re.DOTALL))
    assert list(parts) == list(kq.__all__)
    assert [name for name, part in parts.items() if len(part.split()) < 5] == []
    assert sum("First used in [notebook " in part for part in parts.values()) > len(parts) / 2


def read(notebook: str) -> list[str]:
    """The Markdown cells of a notebook as the site has them."""
    page = json.loads(generated.for_reading((ROOT / "notebooks" / f"{notebook}.ipynb").read_text(encoding="utf-8")))
    return ["".join(cell["source"]) for cell in page["cells"] if cell["cell_type"] == "markdown"]


def test_a_section_has_links_to_the_reference_and_to_the_code_of_what_it_uses() -> None:
    [section] = [each for each in read("02-partitions-and-replicas") if "## 5 · " in each]
    link = "[kq.snapshot.brokers](../docs/names.md#snapshotbrokers) ([code](../kqlib/workshop/snapshot.py))"
    assert link in section.partition("## 5 · ")[2].split("\n\n")[1]


@pytest.mark.nightly  # it imports all of kqlib and what that needs
def test_every_link_of_a_section_has_its_heading_and_its_file() -> None:
    headings = {generated.anchor(each) for each in re.findall(r"^#+ (.+)$", generated.names(), re.MULTILINE)}
    found = [each for path in generated.NOTEBOOKS for each in read(path.stem)]
    links = re.findall(r"\.\./docs/names\.md#(\S+)\) \(\[code\]\(\.\./(\S+)\)\)", "\n".join(found))
    assert len(links) > 100
    assert [link for link in links if link[0] not in headings or not (ROOT / link[1]).is_file()] == []


def test_a_comment_in_a_block_of_code_is_no_heading() -> None:
    assert any("```toml\n# pipeline.toml\n" in each for each in read("12-spark-pipeline"))


def test_a_film_has_all_of_its_frames_in_words() -> None:
    page = json.loads(generated.for_reading((ROOT / "notebooks" / "02-partitions-and-replicas.ipynb").read_text()))
    films = [
        each["data"].get("text/html", "")
        for cell in page["cells"]
        for each in cell.get("outputs", [])
        if "data" in each
    ]
    [film] = [str(html) for html in films if 'class="film"' in str(html)]
    assert all(f"{number} of 6 · " in film for number in range(1, 7))


def test_the_page_of_dependencies_names_what_pyproject_names() -> None:
    page = dependencies.PAGE.read_text(encoding="utf-8")
    for part, names in dependencies.named().items():
        section = page.partition(f"## {dependencies.TITLES[part]}\n")[2].partition("\n## ")[0]
        assert re.findall(r"^\| ([\w.-]+) \| [^|]+ \| [\d.]+ \|", section, re.MULTILINE) == names
