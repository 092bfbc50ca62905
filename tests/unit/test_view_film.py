"""A film: frames from plain values, a still with all sentences, and a slider that the keyboard moves."""

from __future__ import annotations

from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.runtime import places
from kqlib.workshop import view
from kqlib.workshop.view.film import VIEW

LANE = {"partition": 0, "records": [{"offset": 0, "key": "C", "state": "dead"}], "end": 1, "floor": 1}
PARTITION = {"topic": "t", "number": 0, "leader": 1, "replicas": [1, 2], "isr": [1], "ends": {"1": 3, "2": 1}}
BROKERS = [{"id": 1}, {"id": 2, "alive": False}]
RECORDING: dict[str, Any] = {
    "title": "a letter",
    "frames": [
        {"text": "It is dead.", "pictures": [{"log": "q", "lanes": [LANE]}, {"log": "q.dead", "lanes": []}]},
        {"text": "A broker, too.", "pictures": [{"cluster": "t", "brokers": BROKERS, "partitions": [PARTITION]}]},
    ],
}


def test_the_first_frame_is_a_still_and_the_slider_and_the_buttons_step() -> None:
    film = view.film(RECORDING)
    bundle = film._repr_mimebundle_()
    assert "1 of 2 · It is dead." in bundle["text/html"]
    assert bundle["text/html"].count("<img") == 2
    assert VIEW in bundle
    _, controls, words, pictures = film._widget().children
    slider, back, forward = controls.children
    forward.click()
    assert (slider.value, "2 of 2 · A broker, too." in words.value) == (2, True)
    assert pictures.value == film.pictures(2)
    forward.click()
    back.click()
    back.click()
    assert (slider.value, words.value, pictures.value) == (1, film.words(1), film.pictures(1))


def test_a_film_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(NotAllowed, match="there is no film 'leader-kiled' in notebooks/films"):
        view.film("leader-kiled")


def test_each_frame_of_a_stored_film_can_be_drawn_and_has_a_sentence() -> None:
    repo = places.repo()
    assert repo
    for path in (repo / "notebooks" / "films").glob("*.json"):
        film = view.film(path.stem)
        assert len(film.frames) > 4
        for number, frame in enumerate(film.frames, 1):
            assert frame["text"].endswith(".")
            assert all("<svg" in picture.svg for picture in film.frame(number))
