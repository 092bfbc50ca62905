"""`kq lab` in a real browser: what a newcomer sees on a Monday. Skipped where there is no chromium."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium")
QUIET = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
NOWHERE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"  # the browser talks to this machine only
PATIENCE = 120_000

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A copy of the checkout in JupyterLab, so that nothing a browser saves reaches the notebooks."""
    home = tmp_path_factory.mktemp("home")
    for name in ("notebooks", ".ipython", ".jupyter"):
        shutil.copytree(ROOT / name, home / name)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=monday"]
    options += [f"--ServerApp.root_dir={home}"]
    log = (home / "jupyter.log").open("w")
    command = [sys.executable, "-m", "kqlib", "lab", "--no-browser", "--", *options]
    env = {**os.environ, "KQ_STATE": str(home / "state")}
    jupyter = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=env)
    log.close()
    try:
        deadline = time.monotonic() + 60
        while not _listens(port):
            assert jupyter.poll() is None and time.monotonic() < deadline, (home / "jupyter.log").read_text()[-2000:]
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/lab/tree/notebooks/{{}}?token=monday"
    finally:
        jupyter.send_signal(signal.SIGTERM)
        jupyter.wait(30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=[*QUIET, NOWHERE])
        yield opened
        opened.close()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _open(browser: Browser, url: str, scheme: str = "light") -> Page:
    page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(url, timeout=PATIENCE)
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=PATIENCE)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_stored_picture_is_seen_before_anything_runs_or_is_trusted(
    address: str, browser: Browser, scheme: str
) -> None:
    page = _open(browser, address.format("00-start-here.ipynb"), scheme)
    picture = page.locator('img[alt*="4 writers, 5 readers"]')
    expect(picture).to_be_visible(timeout=PATIENCE)
    assert picture.evaluate("image => image.complete && image.naturalWidth") > 300
    assert page.locator(".jp-toast, .Toastify__toast").count() == 0  # no pop-up asks for news
    page.close()


def test_a_reader_starts_a_real_kafka_by_running_the_first_cells(address: str, browser: Browser) -> None:
    page = _open(browser, address.format("01-topics.ipynb"))
    expect(page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=PATIENCE)
    page.locator(".jp-CodeCell .cm-content").first.click()
    page.keyboard.press("End")
    page.keyboard.press("Control+End")
    page.keyboard.type("\nprint(lab, lab.topic('seen-in-a-browser'))")
    page.keyboard.press("Shift+Enter")
    shown = page.get_by_text("Lab('01-topics', Cluster(1 broker)) seen-in-a-browser")
    expect(shown).to_be_visible(timeout=PATIENCE)
    page.close()
