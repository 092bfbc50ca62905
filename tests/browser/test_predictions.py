"""A prediction in a real JupyterLab: chosen by the keyboard, kept, and beside its result at the end.

Keeps screenshots in build/predictions, to look at.
"""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from .conftest import ROOT

SHOTS = ROOT / "build" / "predictions"
LONG = "all ten: the leader keeps them, and every follower has them before the producer gets its answer"
CELLS = [
    f'import kqlib as kq\nkq.predict("02.acks", "none", "some", "{LONG}")',
    'kq.predict("02.kill", "yes", "no")',
    'kq.predicted("02.acks", "some")',
    'kq.predicted("02.kill", "no")',
    "kq.predicted()",
]


def test_a_guess_is_chosen_by_the_keyboard_and_a_missing_one_is_asked_for_at_the_end(
    opened: Callable[..., Page],
) -> None:
    page = opened("guess", *CELLS)
    page.locator(".jp-CodeCell .cm-content:visible").first.click()
    page.keyboard.press("Shift+Enter")
    choice = page.get_by_role("button", name="none")
    expect(choice).to_be_visible()
    choice.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Noted.")).to_be_visible()
    page.locator(".jp-CodeCell .cm-content:visible").nth(1).click()
    for _ in CELLS[1:]:
        page.keyboard.press("Shift+Enter")
    expect(page.get_by_text("your guess: some ✓ · result: some")).to_be_visible()
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.keyboard.press("Control+b")  # no sidebar: 400 pixels are few
    expect(page.get_by_text("choose first")).to_be_visible()
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 900})
        page.screenshot(path=SHOTS / f"{width}.png")
    page.get_by_role("button", name="yes").last.press("Enter")
    expect(page.get_by_role("row", name="02.kill")).to_contain_text("✗")
