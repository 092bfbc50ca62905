"""Ratios in bands: what is stored names the band, and a ratio outside of its band is shown as it is."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.workshop import bench


@pytest.mark.parametrize(
    ("ratio", "ends", "words"),
    [
        (1.4, (0.5, 2), "between 1/2 and 2 ×"),
        (0.5, (0.5, 2), "between 1/2 and 2 ×"),
        (0.3, (0.25, 1), "between 1/4 and 1 ×"),
        (1.6, (1.5, 3), "between 1.5 and 3 ×"),
        (312, (10, None), "at least 10 ×"),
        (0.02, (None, 0.1), "at most 1/10"),
        (2.01, (0.5, 2), "2.01 ×, not between 1/2 and 2 ×"),
        (0.49, (0.5, 2), "0.49 ×, not between 1/2 and 2 ×"),
        (9.9, (10, None), "9.9 ×, not at least 10 ×"),
        (0.11, (None, 0.1), "0.11 ×, not at most 1/10"),
    ],
)
def test_a_ratio_is_shown_as_its_band_and_outside_of_it_as_it_is(ratio: float, ends: bench.Ends, words: str) -> None:
    assert bench.within(ratio, ends) == words


@pytest.mark.parametrize("ends", [(0.5, 2.1), (None, None), (1, 5)])
def test_a_band_that_is_too_wide_to_say_anything_is_refused(ends: bench.Ends) -> None:
    with pytest.raises(NotAllowed, match="at most 1 : 4 apart"):
        bench.within(1, ends)


def test_every_way_beside_the_first_one_needs_its_band() -> None:
    with pytest.raises(NotAllowed, match="a band for each of acks=1, lz4, and for nothing else"):
        bench.ratios("time", {"base": 1, "acks=1": 1, "lz4": 1}, {"acks=1": (0.5, 2)})


def test_a_first_figure_of_0_is_refused() -> None:
    with pytest.raises(NotAllowed, match="the figure of 'base' is 0"):
        bench.ratios("CPU", {"base": 0, "lz4": 1}, {"lz4": (0.5, 2)})


def test_what_is_stored_is_the_same_whatever_was_measured_within_the_band_and_the_live_view_has_the_figures() -> None:
    def made(figure: float) -> dict[str, Any]:
        bundle = bench.ratios("time", {"base": 2.5, "lz4": figure}, {"lz4": (0.5, 2)}, unit="µs")._repr_mimebundle_()
        return {name: value for name, value in bundle.items() if name != bench.VIEW}

    assert made(2.6) == made(1.3)
    assert made(2.6) != made(9)
    found = bench.ratios("time", {"base": 2.5, "lz4": 2.75}, {"lz4": (0.5, 2)}, unit="µs")
    assert repr(found) == "time, compared with 'base' · 1 way\nlz4  between 1/2 and 2 ×"
    assert found["lz4"] == "between 1/2 and 2 ×"
    assert "1.1 × · 2.75 µs" in found._live.svg and "µs" not in found.picture.svg
    assert found._repr_mimebundle_()[bench.VIEW]["model_id"]


def test_the_live_view_says_what_1_is_and_which_ratio_is_outside_of_its_band() -> None:
    def live(figures: dict[str, float], unit: str) -> tuple[bench.Ratios, str]:
        import ipywidgets as widgets

        found = bench.ratios("time", figures, dict.fromkeys([*figures][1:], (None, 2.0)), unit=unit)
        model = found._repr_mimebundle_()[bench.VIEW]["model_id"]
        return found, widgets.widget._instances[model].value

    _, inside = live({"base": 2.5, "lz4": 2.5}, "µs")
    assert inside.endswith("<br>1 × in this run: base, 2.5 µs</div>")
    _, outside = live({"base": 2.5, "lz4": 2.5, "<b>": 12.5}, "µs")
    assert outside.endswith("<br>1 × in this run: base, 2.5 µs<br>outside: &lt;b&gt;, 5 ×, not at most 2 ×</div>")
    found, plain = live({"the source": 1, "ours": 0.526}, "")
    assert plain.endswith("<br>1 × in this run: the source</div>")
    assert [row.figure for row in found.rows] == ["0.526 ×"]


def test_ways_run_in_turn_until_none_becomes_quicker_and_the_least_seconds_of_each_are_kept() -> None:
    calls: list[str] = []
    times = {"a": iter([3.0, 1.0, 2.0, 1.0, 2.0, 9.0]), "b": iter([5.0, 6.0, 4.0, 3.9, 4.0, 4.0])}

    def way(name: str) -> Any:
        def run() -> float:
            calls.append(name)
            return next(times[name])

        return run

    assert bench.in_turn({name: way(name) for name in times}, calm=3) == {"a": 1.0, "b": 3.9}
    assert calls == ["a", "b"] * 6
    falling = iter(range(100, 0, -10))
    assert bench.in_turn({"falls": lambda: float(next(falling))}, most=4) == {"falls": 70.0}
    assert 0 < bench.in_turn({"clock": lambda: None}, most=1)["clock"] < 1


def test_a_clock_of_cpu_does_not_count_the_time_that_a_way_waits() -> None:
    ticks = iter(range(100))
    assert bench.in_turn({"waits": lambda: None}, most=1, clock=lambda: float(next(ticks))) == {"waits": 1.0}
    assert bench.in_turn({"waits": lambda: time.sleep(0.05)}, most=1, clock=time.thread_time)["waits"] < 0.04
