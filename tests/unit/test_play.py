"""A playground's shell: what a reader sees where widgets are known and where they are not."""

from __future__ import annotations

import threading
import time
from importlib import import_module
from typing import Any

import ipywidgets as widgets
import pytest

from kqlib import keys
from kqlib.errors import Closed, KqError, NotAllowed, NotInTime, Unreachable
from kqlib.queue.ledger import Ledger
from kqlib.workshop import view
from kqlib.workshop.play import Playground, queue, scene
from kqlib.workshop.play.playground import VIEW
from kqlib.workshop.play.queue import BAD, GAMES, PARTITIONS, LiveDelivery, Worker, placed, recent, ticks
from kqlib.workshop.play.scene import Scene
from kqlib.workshop.promises.adapter import Claim
from kqlib.workshop.promises.values import Broken, Refused
from tests.patience import WAIT, until


def drawn(key: str, partitions: int) -> view.Table:
    if not key:
        raise NotAllowed("type a key")
    return view.Table([[key, partitions]], ["key", "partitions"])


@pytest.fixture
def play() -> Playground:
    controls = {"key": widgets.Text("ARS"), "partitions": widgets.IntSlider(4, 1, 8)}
    return Playground(
        "toy", drawn, controls, {"grow": lambda partitions, **_: controls["partitions"].set_trait("value", 8)}
    )


def test_one_object_brings_the_twin_the_picture_and_the_live_view(play: Playground) -> None:
    bundle = play._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", VIEW}
    assert bundle["text/plain"] == repr(play) and bundle["text/html"] == drawn("ARS", 4).html


def test_moving_a_control_draws_again_live_and_in_words(play: Playground) -> None:
    play.controls["partitions"].value = 6
    _, note, image, spell, words = play.widget.children
    assert "6" in repr(play) and ">6<" in image.value and note.value == ""
    assert words.value == f"<pre>{drawn('ARS', 6).text}</pre>"  # line breaks stay
    assert words.layout.display == "none"
    spell.value = True
    assert words.layout.display == ""


def test_what_a_reader_types_wrong_is_reported_and_the_last_picture_stays(play: Playground) -> None:
    play.set(key="")
    assert "type a key" in play.note and 'role="alert"' in play.note and "ARS" in repr(play.picture)
    play.set(key="<b>")
    assert play.note == "" and "&lt;b&gt;" in play.widget.children[2].value


@pytest.mark.parametrize(
    ("does", "says"),
    [
        (lambda play: play.set(colour=1), "'toy' has no control 'colour'; it has key, partitions"),
        (lambda play: play.set(partitions="many"), "partitions cannot be 'many'"),
        (lambda play: play.press("shrink"), "'toy' has no button 'shrink'; it has grow"),
    ],
)
def test_a_wrong_name_or_value_is_a_sentence(play: Playground, does: Any, says: str) -> None:
    with pytest.raises(NotAllowed, match="^" + says.replace("(", r"\(")):
        does(play)


def test_an_action_that_fails_is_reported(play: Playground) -> None:
    def fail(**_: Any) -> None:
        raise ValueError("no such member")

    failing = Playground("toy", drawn, play.controls, {"crash": fail})
    assert "ValueError: no such member" in failing.press("crash").note
    assert not failing.controls["key"].disabled


def test_a_button_works_in_a_thread_of_its_own_with_all_controls_locked(play: Playground) -> None:
    inside, go, runs = threading.Event(), threading.Event(), list[int]()
    wait = lambda **_: (runs.append(1), inside.set(), go.wait(WAIT))  # noqa: E731
    slow = Playground("toy", drawn, play.controls, {"wait": wait})
    slow._buttons["wait"].click()
    assert inside.wait(WAIT) and slow.controls["key"].disabled and "wait" in slow.note
    slow.press("wait")  # one at a time: a second press does nothing
    go.set()
    with slow._turn:
        assert slow._turn.wait_for(lambda: not slow._pressed, WAIT)
    assert not slow.controls["key"].disabled and slow.note == ""
    assert runs == [1]


class Changed(Scene):
    """It changes by itself: before the first look, or while the cluster gives no answer."""

    def __init__(self, *looks: KqError) -> None:
        super().__init__()
        self.now, self.looks = "as it was", [*looks]

    def draw(self, **_: object) -> view.Table:
        return view.Table([[self.now]], ["now"])

    def seen(self) -> object:
        if self.looks and self.now == "changed":
            raise self.looks.pop(0)
        return self.now


@pytest.mark.parametrize(
    "looks", [(), (Unreachable(address="here", why="gone"),), (NotInTime(seconds=15, why="the end", last="nothing"),)]
)
@pytest.mark.parametrize("looked", [False, True])
def test_what_changes_by_itself_is_drawn_whatever_was_met_before(
    monkeypatch: pytest.MonkeyPatch, looks: tuple[KqError, ...], looked: bool
) -> None:
    monkeypatch.setattr(scene, "LOOK", 0.1)
    changed = Changed(*looks)
    play = changed.watch(Playground("toy", changed.draw, {}))
    if looked:
        time.sleep(0.3)  # time is the point: it was looked at before
    changed.now = "changed"
    until(lambda: "changed" in play.picture.text)
    changed.looks = [Closed(thing="toy")]
    until(lambda: not changed.looks)


def test_a_press_while_another_button_works_comes_after_it(play: Playground) -> None:
    inside, go, done = threading.Event(), threading.Event(), list[str]()
    later = {name: lambda name=name, **_: done.append(name) for name in "abcde"}
    slow = Playground("toy", drawn, play.controls, {"wait": lambda **_: (inside.set(), go.wait(WAIT)), **later})
    slow._buttons["wait"].click()
    assert inside.wait(WAIT)
    for name in later:
        assert not slow._buttons[name].disabled  # else a browser drops a click that was begun before
        slow._buttons[name].click()
    assert done == []
    go.set()
    with slow._turn:
        assert slow._turn.wait_for(lambda: not slow._pressed, WAIT)
    assert done == list("abcde")


# --- the live queue: everything but the broker ---------------------------------------------------------------------------


class Remote:
    """A worker's process that is none: it has one item, and its answer to an ack is what the test wants."""

    def __init__(self, item: str, answer: Exception | None = None) -> None:
        self.items, self.answer, self.calls = [item], answer, list[str]()
        self.stands = self.dead = False

    def call(self, verb: str, *_: Any, **__: Any) -> Claim | None:
        assert not self.stands, "a stopped process was asked"
        if self.dead:
            raise Broken("gone")
        self.calls.append(verb)
        if verb != "claim" and self.answer:
            raise self.answer
        return Claim(0, self.items.pop(), 1) if verb == "claim" and self.items else None

    def pause(self) -> None:
        self.stands = True

    def resume(self) -> None:
        self.stands = False

    def kill(self) -> None:
        self.dead = True


CLAIMED = Ledger()
CLAIMED.claim([0])


class Gate(threading.Event):
    """An event that notes when a thread waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_for = threading.Event()
        self.set()

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self.waited_for.set()
        return super().wait(timeout)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("kqlib.workshop.play.queue")  # kqlib.workshop.play's own `queue` is the function
    monkeypatch.setattr(module, "WORK", 0.05)
    monkeypatch.setattr(module, "AGAIN", 60.0)


@pytest.mark.parametrize(
    ("item", "answer", "end", "state"),
    [
        ("ARS-CHE 1", None, "ack", ("waiting", "×1")),
        (f"{BAD} 1", None, "release", ("due", "")),
        ("ARS-CHE 1", Refused("LeaseLost", "its lease has expired"), "refused", ("waiting", "×1")),
    ],
)
def test_a_worker_claims_works_and_its_delivery_says_how_it_ended(
    quick: None, item: str, answer: Exception | None, end: str, state: tuple[str, str]
) -> None:
    held, remote = list[LiveDelivery](), Remote(item, answer)
    worker = Worker("ann", remote, held)  # type: ignore[arg-type]
    until(lambda: held and held[0].until)
    assert (held[0].end, remote.calls[:2]) == (end, ["claim", "release" if end == "release" else "ack"])
    assert placed(0, item, CLAIMED, held, buried=False) == state
    worker.kill()
    assert placed(0, item, CLAIMED, held, buried=False) == ("waiting", "×1")  # its delays are gone with it


def test_a_stalled_worker_is_asked_nothing_and_acks_when_it_wakes(quick: None) -> None:
    held, remote = list[LiveDelivery](), Remote("ARS-CHE 1", Refused("LeaseLost", ""))
    worker = Worker("ann", remote, held)  # type: ignore[arg-type]
    until(lambda: held)
    worker._awake = gate = Gate()
    worker.stall()
    assert gate.waited_for.wait(WAIT)  # its work is over: only the ack is left
    assert (worker.state, held[0].end) == ("stalled", "open")
    assert placed(0, "ARS-CHE 1", CLAIMED, held, buried=False) == ("claimed", "ann")
    worker.wake()
    until(lambda: held[0].end == "refused")
    worker.kill()


def test_a_killed_worker_holds_nothing_any_more(quick: None) -> None:
    held, remote = list[LiveDelivery](), Remote("ARS-CHE 1")
    worker = Worker("ann", remote, held)  # type: ignore[arg-type]
    until(lambda: held)
    worker.kill()
    assert (worker.state, remote.dead, held[0].end) == ("killed", True, "killed")


def test_what_is_committed_says_where_an_item_is() -> None:
    ledger = Ledger()
    ledger.claim(range(4))
    ledger.ack([0, 2])
    found = [placed(at, "ARS-CHE 1", ledger, [], buried=at == 2)[0] for at in range(5)]
    assert found == ["done", "waiting", "dead", "waiting", "waiting"]


def test_deliveries_are_drawn_in_the_order_of_what_happened_and_not_in_seconds() -> None:
    held = [LiveDelivery("ann", "ARS-CHE 1", 1, 0.0, 900.0, "refused"), LiveDelivery("ben", f"{BAD} 2", 2, 1.0)]
    drawn = [(one.worker, one.attempt, one.begin, one.until, one.end, one.did) for one in ticks(held)]
    assert drawn == [("ann", 1, 2, 6, "refused", "A"), ("ben", 2, 4, 8, "open", BAD)]


def test_a_refused_delivery_is_shown_until_the_next_one_is_refused() -> None:
    ends = ["ack", "refused", "ack", "refused", *["ack"] * 6]
    held = [LiveDelivery("ann", f"ARS-CHE {at}", 1, float(at), at + 0.5, end) for at, end in enumerate(ends)]
    assert [one.begin for one in recent(held[:4])] == [0, 1, 2, 3]
    assert [one.begin for one in recent(held[:7])] == [2, 3, 4, 5, 6]
    assert [one.begin for one in recent(held)] == [3, 6, 7, 8, 9]


def test_six_items_are_three_for_each_partition_and_lie_in_turn() -> None:
    assert [keys.partition(game, PARTITIONS) for game in GAMES] == [0, 1] * 3


@pytest.mark.parametrize("where", [None, "lab", 3])
def test_a_queue_wants_a_lab_or_a_cluster(where: Any) -> None:
    with pytest.raises(NotAllowed, match=r"^this wants a lab or a cluster, as in kq.play.queue\(lab\), not "):
        queue(where)
