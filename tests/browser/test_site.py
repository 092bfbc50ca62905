"""The site in a real browser, from the disk: built without a warning, no dead link, search, films, dark mode, and what axe finds."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, Page, expect

from .conftest import ROOT, WAIT_MS, width

pytestmark = pytest.mark.nightly
SOURCES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("data/*.md"), *ROOT.glob("notebooks/*.ipynb")]
PAGES = [*sorted(path.relative_to(ROOT).with_suffix("").as_posix() for path in SOURCES), "search"]
SITE, SHOTS = ROOT / "build" / "site", ROOT / "build" / "site-shots"
Visit = Callable[..., Page]
IN_TWO_LINES = """() => [...document.querySelectorAll("article td")].flatMap((cell) => {
  const found = [], range = new Range(), texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let text; (text = texts.nextNode()); ) {
    for (const word of text.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((each) => Math.round(each.top))).size > 1) found.push(text.data);
    }
  }
  return found;
})"""


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built anew as `make site` builds it."""
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-W", "--keep-going", "-c", "docs"]
    built = subprocess.run(
        [*command, "-d", "build/site-cache", ".", str(SITE)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return SITE


@pytest.fixture
def opened(site: Path, browser: Browser) -> Iterator[Visit]:
    """Visit a page of the site, in a browser with this scheme and width."""
    pages: list[Page] = []

    def opened(name: str, scheme: str = "light", wide: int = 1280) -> Page:
        page = browser.new_page(viewport={"width": wide, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        pages.append(page)
        page.set_default_timeout(WAIT_MS)
        page.goto(f"file://{site / name}")
        return page

    yield opened
    for page in pages:
        page.close()


def test_no_link_is_dead_and_nothing_is_fetched(site: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    ids = {path: set(re.findall(r'\bid="([^"]+)"', html)) for path, html in pages.items()}
    dead, links = [], 0
    for path, html in pages.items():
        for found in re.findall(r'(?:href|src)="([^"]+)"', html):
            address, _, fragment = unescape(found).partition("#")
            address = address.partition("?")[0]  # ?v=… says which version of a script it is
            if address.startswith(("http", "data:", "mailto:")):
                continue
            target = (path.parent / unquote(address)).resolve() if address else path
            links += 1
            if not target.exists() or (fragment and target.suffix == ".html" and unquote(fragment) not in ids[target]):
                dead.append(f"{path.relative_to(site)}: {found}")
    assert links > 1000 and dead == []
    fetched = r'<(?:script|img|iframe)[^>]+src="https?:|<link[^>]+rel="stylesheet"[^>]+href="https?:'
    assert [path.name for path, html in pages.items() if re.search(fetched, html)] == []


def test_the_first_page_leads_to_the_start_and_a_search_finds_the_ledger(opened: Visit) -> None:
    page = opened("index.html")
    expect(page.get_by_role("heading", name="kqlib: a Kafka queue")).to_be_visible()
    search = page.get_by_role("textbox", name="Search")
    search.fill("ledger")
    search.press("Enter")
    expect(page.locator("#search-results li").first).to_be_visible()
    expect(page.locator("#search-results")).to_contain_text("leases and the ledger", ignore_case=True)


@pytest.mark.parametrize("notebook", ["02-partitions-and-replicas", "04-consumer-groups", "08-leases-and-the-ledger"])
def test_a_film_runs_without_a_kernel_by_the_keyboard(opened: Visit, notebook: str) -> None:
    film = opened(f"notebooks/{notebook}.html").locator(".film")
    status = film.get_by_role("status")
    expect(status).to_contain_text("1 of ")
    film.get_by_role("slider").press("ArrowRight")
    expect(status).to_contain_text("2 of ")
    film.get_by_role("button", name="next").press("Enter")
    expect(status).to_contain_text("3 of ")
    film.get_by_role("button", name="back").press("Enter")
    expect(status).to_contain_text("2 of ")
    assert all(width(image) > 200 for image in film.locator("section:not([hidden]) img").all())


def test_it_is_dark_where_the_browser_is(opened: Visit) -> None:
    ink = {}
    for scheme in ("light", "dark"):
        page = opened("docs/index.html", scheme)
        colour = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
        ink[scheme] = sum(map(int, re.findall(r"\d+", colour)[:3]))
    assert ink["light"] > 600 and ink["dark"] < 200


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(opened: Visit, scheme: str, name: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(opened(f"{name}.html", scheme)).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in serious] == []


def test_no_page_is_wider_than_a_phone(opened: Visit, site: Path) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    wide = []
    for name in (
        "README",
        "docs/index",
        "docs/road",
        "docs/costs",
        "docs/names",
        "docs/kq",
        "notebooks/02-partitions-and-replicas",
    ):
        for pixels in (1280, 400):
            page = opened(f"{name}.html", wide=pixels)
            page.screenshot(path=SHOTS / f"{name.replace('/', '-')}-{pixels}.png")
            if page.evaluate("document.documentElement.scrollWidth") > pixels:
                wide.append(f"{name} at {pixels}")
    assert wide == []


def test_a_phone_shows_pictures_in_their_size_and_definitions_without_scrolling(opened: Visit) -> None:
    pictures = opened("docs/road.html", wide=400).locator("article img")
    shrunk = (
        "all => all.filter(each => each.getBoundingClientRect().width < each.naturalWidth - 1).map(each => each.alt)"
    )
    assert pictures.count() > 16 and pictures.evaluate_all(shrunk) == []
    definitions = opened("docs/glossary.html", wide=400).locator("article td:nth-child(2)")
    assert definitions.evaluate_all("all => all.every(each => each.getBoundingClientRect().right <= innerWidth)")


@pytest.mark.parametrize(
    "name", ["docs/costs", "docs/how-to/fix-your-machine", "docs/how-to/other-frameworks", "data/README"]
)
def test_a_phone_breaks_long_names_in_tables_between_their_words(opened: Visit, name: str) -> None:
    page = opened(f"{name}.html", wide=400)
    assert page.evaluate(IN_TWO_LINES) == []


def test_a_table_is_read_without_scrolling_and_an_option_stays_whole(opened: Visit) -> None:
    fits = (
        "table => Math.max(table.scrollWidth, table.parentElement.scrollWidth - 6) <= table.parentElement.clientWidth"
    )
    assert opened("docs/do-i-need-spark.html", wide=1100).locator("article table").first.evaluate(fits)
    changes = opened("notebooks/05-avro-versions.html", wide=400).locator(
        ".output table", has_text="rename, with an alias"
    )
    assert changes.evaluate(fits)
    assert changes.locator("td").first.evaluate("cell => cell.clientWidth") > 100  # not a word a line
    option = opened("docs/how-to/game-day.html").locator("code .pre", has_text="--faults").last
    assert option.evaluate("name => name.getClientRects().length") == 1
