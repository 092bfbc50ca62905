"""`kq lab` in a real browser: what a newcomer sees on a Monday."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .conftest import Visit, width


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
def test_a_stored_picture_is_seen_before_anything_runs_or_is_trusted(visit: Visit, scheme: str) -> None:
    page = visit("00-start-here.ipynb", scheme)
    picture = page.locator('img[alt*="4 writers, 5 readers"]')
    expect(picture).to_be_visible()
    assert width(picture) > 300
    assert page.locator(".jp-toast, .Toastify__toast").count() == 0  # no pop-up asks for news


def test_a_reader_starts_a_real_kafka_by_running_the_first_cells(visit: Visit) -> None:
    page = visit("01-topics.ipynb")
    page.locator(".jp-CodeCell .cm-content:visible").first.click()
    page.keyboard.press("End")
    page.keyboard.press("Control+End")
    page.keyboard.type("\nprint(lab, lab.topic('seen-in-a-browser'))")
    page.keyboard.press("Shift+Enter")
    shown = page.get_by_text("Lab('01-topics', Cluster(1 broker)) seen-in-a-browser")
    expect(shown).to_be_visible()
