"""Each playground in a real JupyterLab: its controls are moved by the keyboard, and the picture says what they say.

Keeps a light and a dark screenshot of each in build/playgrounds, to look at.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect

from .conftest import ROOT, themed, width

SHOTS = ROOT / "build" / "playgrounds"
Play = Callable[..., Locator]
MOVED = re.compile(r"✓\d+ \|floor")  # a lane whose floor is behind what is done


def words(shown: Locator) -> Locator:
    """The picture's text twin; opened by the keyboard where it is still closed."""
    twin = shown.locator("pre")
    if not twin.is_visible():
        shown.get_by_role("button", name="in words").press("Enter")
        expect(twin).to_be_visible()
    return twin


def choose(shown: Locator, name: str, option: str) -> None:
    """Take an option of a dropdown."""
    shown.get_by_label(name).select_option(option)


def press(shown: Locator, button: str) -> None:
    """Press a button, and wait until it can be pressed again."""
    shown.get_by_role("button", name=button).press("Enter")
    expect(shown.get_by_role("button", name=button)).to_be_enabled()


def shots(shown: Locator, name: str) -> None:
    """A light and a dark screenshot to look at; the picture is there, and it has a sentence for those who do not see it."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    expect(shown.locator("img, table").first).to_be_visible()
    for image in shown.locator("img").all():
        assert width(image) > 200
        assert (image.get_attribute("alt") or "").strip()
    seen = set()
    for scheme in ("light", "dark"):
        shown.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        themed(shown.page, scheme)
        seen.add(shown.screenshot(path=SHOTS / f"{name}-{scheme}.png"))
    assert len(seen) == 2


@pytest.mark.nightly  # by day tests/unit/test_keys.py moves its controls without a browser
def test_keys_a_key_is_typed_partitions_slide_and_the_hash_switches(play: Play) -> None:
    shown = play("keys", "import kqlib as kq\nkq.play.keys()")
    twin = words(shown)
    expect(twin).to_contain_text("LAL-BOS → p2")
    shown.get_by_label("key").fill("MCI-LIV")
    expect(twin).to_contain_text("MCI-LIV → p0")
    for _ in range(2):
        shown.get_by_role("slider").press("ArrowRight")
    expect(twin).to_contain_text("6 partitions")
    choose(shown, "hash", "crc32")
    expect(twin).to_contain_text("crc32 · 6 partitions")
    shown.get_by_label("key").fill("")
    expect(shown.get_by_role("alert")).to_contain_text("an empty key")
    shown.get_by_label("key").fill("LAL-BOS")
    expect(shown.get_by_role("alert")).to_have_count(0)
    press(shown, "in words")
    expect(twin).to_be_hidden()
    shots(shown, "keys")


@pytest.mark.nightly  # by day tests/unit moves its controls without a browser
def test_schemas_reader_writer_and_level_are_picked(play: Play) -> None:
    shown = play("schemas", "import kqlib as kq\nkq.play.schemas()")
    twin = words(shown)
    expect(twin).to_contain_text("v3 reads v1 · BACKWARD lets v3 follow v1")
    choose(shown, "level", "FORWARD")
    expect(twin).to_contain_text("FORWARD does not let v3 follow v1")
    choose(shown, "reader", "v1")
    choose(shown, "writer", "v3")
    expect(twin).to_contain_text("v1 cannot read v3")
    shots(shown, "schemas")


@pytest.mark.nightly  # by day test_delivery, test_lab and test_standings press the same buttons without a browser
@pytest.mark.limit(300)
def test_delivery_virtual_and_pipeline_work_on_one_lab(play: Play) -> None:
    shown = play(
        "three", "\n".join(["import kqlib as kq", 'lab = kq.lab("three")', *map("display(kq.play.{})".format, THREE)])
    )
    every = shown.page.locator(".jp-OutputArea-output .widget-vbox")
    expect(every).to_have_count(len(THREE))
    for at, look in enumerate(THREE.values()):
        look(every.nth(at))


def _delivery(shown: Locator) -> None:
    """A worker is killed for real, and its cell is filled."""
    twin = words(shown)
    expect(twin).to_contain_text("16 not run yet")
    choose(shown, "order", "at-most-once")
    choose(shown, "killed after", "commit")
    press(shown, "run it")
    expect(twin).to_contain_text("[lost 1, once 9]")
    expect(twin).to_contain_text("15 not run yet")
    shots(shown, "delivery")


def _virtual(shown: Locator) -> None:
    """A node starts and another one is killed; a put finds the owner."""
    twin = words(shown)
    press(shown, "put")
    expect(twin).to_contain_text("put ARS-CHE: A 201")
    choose(shown, "node", "B")
    press(shown, "start")
    expect(twin).to_contain_text(re.compile(r"p\d  node B"))  # by itself: the group has given it a partition
    choose(shown, "node", "A")
    press(shown, "pause")
    expect(twin).not_to_contain_text("node A, paused")  # by itself: its session is over
    press(shown, "kill")
    press(shown, "claim")
    expect(twin).to_contain_text("B 200, attempt 1")
    expect(twin).to_contain_text("ARS-CHE 1 (1 out)")
    shots(shown, "virtual")
    press(shown, "kill")
    expect(shown.get_by_role("alert")).to_contain_text("node A is killed; kill is for a node that is running or paused")


def _pipeline(shown: Locator) -> None:
    """Rows of three kinds are run, and each is in one place."""
    twin = words(shown)
    expect(twin).to_contain_text("0 in = 0 out + 0 broken + 0 late · 100 waiting")
    choose(shown, "rows", "broken")
    press(shown, "put 100 rows")
    press(shown, "run")
    expect(twin).to_contain_text("Spark starts")
    expect(twin).to_contain_text("200 in = 100 out + 100 broken + 0 late · 0 waiting")
    expect(twin).to_contain_text("place  team")
    shots(shown, "pipeline")
    choose(shown, "see", "batches")
    expect(twin).to_contain_text(re.compile(r"waiting +100 +200"))
    shots(shown, "pipeline-batches")
    choose(shown, "see", "status")
    expect(twin).to_contain_text(re.compile(r"rows a second +[1-9][0-9]*\n"))
    expect(twin).to_contain_text(re.compile(r"lag of play-games/1 +0\n"))
    shots(shown, "pipeline-status")


THREE: dict[str, Callable[[Locator], None]] = {
    "delivery(lab.cluster)": _delivery,
    "virtual(lab)": _virtual,
    "pipeline(lab)": _pipeline,
}


@pytest.mark.nightly  # by day test_lab kills its only broker without a browser
@pytest.mark.limit(300)
def test_brokers_are_killed_and_cut_off_and_acks_decide_what_is_kept(play: Play) -> None:
    code = 'import kqlib as kq\nlab = kq.lab("brokers", brokers=3, wire="all")\nkq.play.brokers(lab)'
    shown = play("brokers", code)
    twin = words(shown)
    press(shown, "send 10 records")
    expect(twin).to_contain_text("10 sent, 10 acknowledged")
    choose(shown, "acks", "1")
    press(shown, "cut off")
    press(shown, "send 10 records")
    expect(twin).to_contain_text("20 sent, 20 acknowledged")
    expect(twin).to_contain_text("broker 1 cut off")
    expect(twin).to_contain_text(re.compile(r"broker [23] +★p0=10"))  # by itself: the others chose a leader
    shots(shown, "brokers-cut")
    press(shown, "bring back")
    expect(twin).to_contain_text(re.compile(r"broker 1 +p0=10\n"))  # it cuts its log: ten acknowledged records are lost
    press(shown, "pause")
    expect(twin).to_contain_text("broker 1 paused")
    shots(shown, "brokers-paused")
    press(shown, "bring back")
    expect(twin).not_to_contain_text("out of ISR")
    shots(shown, "brokers")


@pytest.mark.nightly  # by day tests/promises moves its controls without a browser
def test_group_members_join_and_die_by_a_button_and_partitions_and_lag_move(play: Play) -> None:
    code = 'import kqlib as kq\nlab = kq.lab("group")\nkq.play.group(lab)'
    shown = play("group", code)
    twin = words(shown)
    expect(twin).to_contain_text("1 member · 4 partitions · lag 0")
    press(shown, "join")
    expect(twin).to_contain_text("2 members")
    press(shown, "pause")
    press(shown, "put 1000 records")
    expect(twin).to_contain_text(re.compile(r"lag [1-9]"))  # ben's half stays while he is busy
    press(shown, "crash")
    expect(twin).to_contain_text("1 member ")
    expect(twin).to_contain_text("lag 0")  # by itself: ann works on
    choose(shown, "see", "over time")
    expect(twin).to_contain_text("ben crashes")
    shots(shown, "group")
    press(shown, "crash")
    expect(shown.get_by_role("alert")).to_contain_text("'ben' has crashed")


@pytest.mark.nightly  # by day tests/promises/test_queue_work.py presses the same buttons without a browser
@pytest.mark.limit(300)
def test_queue_workers_are_added_stalled_woken_and_killed_and_floor_and_top_move(play: Play) -> None:
    code = 'import kqlib as kq\nlab = kq.lab("queue")\nkq.play.queue(lab)'
    shown = play("queue", code)
    twin = words(shown)
    expect(twin).to_contain_text("nobody works · 2 partitions · 3 + 3 records")
    press(shown, "kill")
    expect(shown.get_by_role("alert")).to_contain_text("'ann' is not there")
    press(shown, "add")
    expect(twin).to_contain_text("(ann)")  # by itself: it has claimed
    press(shown, "stall")
    expect(twin).to_contain_text("ann stalled")
    choose(shown, "who", "ben")
    press(shown, "add")
    expect(twin).to_contain_text("(ben)")  # it took over when ann's session was over
    shots(shown, "queue")
    choose(shown, "who", "ann")
    press(shown, "wake")
    choose(shown, "see", "deliveries")
    expect(twin).to_contain_text("⛔ refused")  # its ack came too late
    choose(shown, "who", "ben")
    press(shown, "kill")
    expect(twin).to_contain_text("ben")
    shots(shown, "queue-deliveries")
    choose(shown, "see", "now")
    press(shown, "put one that fails")
    expect(twin).to_contain_text("ben killed")
    expect(twin).to_contain_text("X✕")  # three attempts, two delays: a dead letter
    expect(twin).to_contain_text("0 not done")
    expect(twin).to_contain_text(MOVED)
