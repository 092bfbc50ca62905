"""JupyterLab as `kq lab` starts it, and a real browser before it. Skipped where there is no chromium."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from kqlib.workshop.cluster.node import free_ports
from tests.notebooks.stored import KERNEL
from tests.patience import WAIT

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium")
QUIET = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
NOWHERE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"  # the browser talks to this machine only
WAIT_MS = 1000 * WAIT

Visit = Callable[
    ..., Page
]  # visit("01-topics.ipynb", scheme="dark") -> its page, when the notebook is there and its kernel idle


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if CHROMIUM is None and item.path.is_relative_to(ROOT / "tests" / "browser"):
            item.add_marker(pytest.mark.skip(reason="no chromium"))


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout for JupyterLab, so that nothing a browser saves reaches the notebooks."""
    home = tmp_path_factory.mktemp("home")
    for name in ("notebooks", ".ipython", ".jupyter"):
        shutil.copytree(ROOT / name, home / name)
    themes = home / "settings" / "@jupyterlab" / "apputils-extension" / "themes.jupyterlab-settings"
    themes.parent.mkdir(parents=True)
    themes.write_text('{"adaptive-theme": true}')  # JupyterLab is dark where the browser is
    return home


@pytest.fixture(scope="session")
def jupyter(project: Path) -> Iterator[str]:
    """Its address, with space for the name of a workspace and of a notebook."""
    (port,) = free_ports(1)  # not one that the system may give to a client meanwhile
    options = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=monday"]
    options += [f"--ServerApp.root_dir={project}"]
    log = (project / "jupyter.log").open("w")
    command = [sys.executable, "-m", "kqlib", "lab", "notebooks/00-start-here.ipynb", "--no-browser", "--", *options]
    env = {**os.environ, "KQ_STATE": str(project / "state"), "JUPYTERLAB_SETTINGS_DIR": str(project / "settings")}
    server = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=env)
    log.close()
    try:
        deadline = time.monotonic() + WAIT
        while not _listens(port):
            assert server.poll() is None and time.monotonic() < deadline, (project / "jupyter.log").read_text()[-2000:]
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/lab/workspaces/{{}}/tree/notebooks/{{}}?token=monday"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(WAIT)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's chromium."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=[*QUIET, NOWHERE])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One for all pages of JupyterLab: what the first page has loaded does not come again."""
    with browser.new_context(viewport={"width": 1200, "height": 900}) as made:
        yield made


def width(image: Locator) -> int:
    """How wide a picture is, when the browser has it: one that was drawn anew a moment ago has no width yet."""
    return int(image.evaluate("async image => { await image.decode(); return image.naturalWidth }"))


def themed(page: Page, scheme: str) -> None:
    """Wait until JupyterLab has the theme that the browser asks for."""
    light = str(scheme == "light").lower()
    expect(page.locator(f"body[data-jp-theme-light={light}]")).to_be_attached()
    expect(page.locator("#jupyterlab-splash")).to_have_count(0)  # it lies over all while the theme changes


@pytest.fixture
def visit(jupyter: str, context: BrowserContext) -> Iterator[Visit]:
    """Open a notebook in a page of its own. A workspace each: an earlier layout would be restored."""
    pages: list[Page] = []

    def visit(notebook: str, scheme: str = "light") -> Page:
        page = context.new_page()
        pages.append(page)
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_default_timeout(WAIT_MS)
        page.goto(jupyter.format(f"page-{next(NUMBERS)}", notebook))
        themed(page, scheme)
        # 00 may have opened in front of it. While it opens, a second tab has its name, but no title yet.
        page.locator(f"#jp-main-dock-panel [role=tab][title^='Name: {notebook}']").click()
        expect(page.locator(".jp-Notebook .jp-Cell:visible").first).to_be_visible()
        # the kernel's own sign says idle too early, and a click on Run is lost then
        expect(page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible()
        return page

    yield visit
    for page in pages:
        page.close()


NUMBERS = count(1)
expect.set_options(timeout=WAIT_MS)  # a state that has to come is waited for, as everywhere


@pytest.fixture
def opened(project: Path, visit: Visit) -> Callable[..., Page]:
    """A new notebook with these cells, in a page of its own."""

    def opened(name: str, *cells: str) -> Page:
        nb = new_notebook(cells=[new_code_cell(code) for code in cells], metadata={"kernelspec": KERNEL})
        nbformat.write(nb, project / "notebooks" / f"{name}.ipynb")
        return visit(f"{name}.ipynb")

    return opened


@pytest.fixture
def play(opened: Callable[..., Page]) -> Callable[..., Locator]:
    """Run this code in a notebook of its own and give the live playground that it shows."""

    def play(name: str, code: str) -> Locator:
        page = opened(name, code)
        page.locator(".jp-CodeCell .cm-content:visible").first.click()
        page.keyboard.press("Shift+Enter")
        shown = page.locator(".jp-OutputArea-output .widget-vbox").first
        expect(shown.locator("img, table").first).to_be_visible()
        return shown

    return play
