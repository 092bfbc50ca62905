"""A playground's shell: what a reader sees where widgets are known and where they are not."""

from __future__ import annotations

import threading
from typing import Any

import ipywidgets as widgets
import pytest

from kqlib import view
from kqlib.errors import NotAllowed
from kqlib.play import Playground
from kqlib.play.playground import VIEW


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


def test_a_terminal_gets_the_picture_in_words_and_what_the_controls_say(play: Playground) -> None:
    assert repr(play).splitlines() == [
        "key  partitions",
        "ARS           4",
        "playground 'toy' · key: ARS · partitions: 4 · [grow]",
    ]


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


def test_what_a_reader_types_wrong_is_said_and_the_last_picture_stays(play: Playground) -> None:
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


def test_an_action_draws_again_when_it_is_done_and_gives_the_controls_back(play: Playground) -> None:
    assert "8" in repr(play.press("grow").picture)
    assert not any(hand.disabled for hand in play.widget.children[0].children)


def test_an_action_that_fails_is_said(play: Playground) -> None:
    def fail(**_: Any) -> None:
        raise ValueError("no such member")

    failing = Playground("toy", drawn, play.controls, {"crash": fail})
    assert "ValueError: no such member" in failing.press("crash").note
    assert not failing.controls["key"].disabled


def test_a_button_works_in_a_thread_of_its_own_with_all_controls_locked(play: Playground) -> None:
    inside, go = threading.Event(), threading.Event()
    slow = Playground("toy", drawn, play.controls, {"wait": lambda **_: (inside.set(), go.wait(5))})
    slow._buttons["wait"].click()
    assert inside.wait(5) and slow.controls["key"].disabled and "wait" in slow.note
    slow.press("wait")  # one at a time: a second press does nothing
    go.set()
    slow._busy.acquire(timeout=5)
    assert not slow.controls["key"].disabled and slow.note == ""
