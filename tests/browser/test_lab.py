"""`kq lab` in a real browser: what a newcomer sees on a Monday."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from .conftest import Visit, width


def is_seen(page: Page) -> None:
    """The stored picture of 00, and no pop-up that asks for news."""
    picture = page.locator('img[alt*="4 writers, 5 readers"]')
    expect(picture).to_be_visible()
    assert width(picture) > 300
    assert page.locator(".jp-toast, .Toastify__toast").count() == 0


def test_a_stored_picture_is_seen_before_anything_runs_and_a_reader_starts_a_real_kafka_in_the_first_cell(
    visit: Visit,
) -> None:
    page = visit("00-start-here.ipynb")
    is_seen(page)
    page.locator(".jp-CodeCell .cm-content:visible").first.click()
    page.keyboard.press("Control+End")
    page.keyboard.type("\nlab = kq.lab('00-start-here')\nprint(lab, lab.topic('seen-in-a-browser'))")
    page.keyboard.press("Shift+Enter")
    shown = page.get_by_text("Lab('00-start-here', Cluster(1 broker)) seen-in-a-browser")
    expect(shown).to_be_visible()


@pytest.mark.nightly  # the cut: the same in the light, above
def test_a_stored_picture_is_seen_in_the_dark(visit: Visit) -> None:
    is_seen(visit("00-start-here.ipynb", "dark"))
