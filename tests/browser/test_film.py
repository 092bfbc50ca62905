"""A film in a real JupyterLab: the keyboard steps through it. Keeps screenshots in build/films, to look at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect

from .conftest import ROOT, width

SHOTS = ROOT / "build" / "films"


@pytest.mark.nightly  # by day tests/unit/test_view_film.py moves its slider and its buttons without a browser
def test_the_slider_and_the_buttons_step_by_the_keyboard(play: Callable[..., Locator]) -> None:
    shown = play("film", 'import kqlib as kq\nkq.view.film("leader-killed")')
    status = shown.get_by_role("status")
    expect(status).to_contain_text("1 of 6")
    shown.get_by_role("slider").press("ArrowRight")
    expect(status).to_contain_text("2 of 6")
    shown.get_by_role("button", name="next").press("Enter")
    expect(status).to_contain_text("3 of 6")
    assert all(width(image) > 200 for image in shown.locator("img").all())
    SHOTS.mkdir(parents=True, exist_ok=True)
    shown.page.keyboard.press("Control+b")
    for wide in (1280, 400):
        shown.page.set_viewport_size({"width": wide, "height": 900})
        shown.page.screenshot(path=SHOTS / f"{wide}.png")
    shown.get_by_role("button", name="back").press("Enter")
    expect(status).to_contain_text("2 of 6")
