"""`kq size`: a load becomes numbers, each with its formula. The constants are those of docs/costs.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from kqlib import sizing
from kqlib.sizing import Load, size
from tests.unit.cli.conftest import run

ROOT = Path(__file__).resolve().parents[2]
ASKED = Load(items=2_000, data=900, keep=7 * 86_400, handler=0.04, sites=2)
TYPED = ["size", "--items", "2000/s", "--bytes", "900", "--keep", "7d", "--handler", "40ms", "--sites", "2"]
SMALL = Load(items=1 / 60, data=10, keep=60, handler=0.001)


def test_every_constant_is_a_row_of_the_table_in_docs_costs() -> None:
    text = (
        (ROOT / "docs" / "costs.md").read_text().partition("\n## What `kq size` counts with\n")[2].partition("\n## ")[0]
    )
    listed = {name: float(value) for name, value in re.findall(r"^\| `(\w+)` \| ([\d.]+) \| \S", text, re.MULTILINE)}
    used = {name: value for name, value in vars(sizing).items() if name.isupper() and isinstance(value, int | float)}
    assert listed == {name: value for name, value in used.items() if name != "RECORD_BYTES"}


@pytest.mark.parametrize(
    ("load", "numbers", "first"),
    [  # partitions, brokers, processes and threads of a site
        (ASKED, (18, 3, 9, 115), "threads"),
        (SMALL, (4, 3, 2, 1), "threads"),
        (Load(10_000, 100, 3_600, 0.0001), (8, 5, 4, 2), "threads"),
        (Load(20_000, 900_000, 3_600, 0.001), (12, 619, 6, 29), "brokers' network"),
    ],
)
def test_a_load_needs(load: Load, numbers: tuple[int, ...], first: str) -> None:
    found = size(load)
    assert (found.partitions, found.brokers, found.processes, found.threads) == numbers
    assert next(iter(found.limits)) == first


def test_the_disk_holds_what_is_kept_and_the_files_that_are_not_full_on_every_replica_with_space_left() -> None:
    record = 900 + sizing.MORE_BYTES
    kept = 2_000 * record * 7 * 86_400
    assert size(ASKED).disk == pytest.approx((kept + 18 * 2**30) * 3 / 0.7, abs=1)
    record = 10 + sizing.MORE_BYTES  # a week does not fill a file
    assert size(SMALL).disk == pytest.approx((record + record * 7 * 1_440) * 3 / 0.7, abs=1)


LOADS = st.builds(
    Load,
    items=st.floats(0.01, 1e6),
    data=st.integers(1, 1_000_000),
    keep=st.floats(1, 1e8),
    handler=st.floats(1e-4, 1e4),
    sites=st.integers(1, 50),
)


@given(LOADS)
def test_a_size_carries_its_load_also_while_a_process_and_a_broker_are_away(load: Load) -> None:
    found = size(load)
    one_away = {
        "processes": (found.processes - 1) / found.processes,
        "brokers' CPU": (found.brokers - 1) / found.brokers,
        "brokers' network": (found.brokers - 1) / found.brokers,
    }
    for name, at in found.limits.items():
        assert (at + 1) * one_away.get(name, 1) >= load.items, name
    assert found.partitions >= 2 * found.processes
    assert found.threads <= (found.processes - 1) * sizing.THREADS


@given(LOADS, st.floats(1, 10))
def test_more_items_never_need_less(load: Load, more: float) -> None:
    less, larger = size(load), size(Load(load.items * more, load.data, load.keep, load.handler, load.sites))
    for name in ("partitions", "brokers", "disk", "processes", "threads"):
        assert getattr(larger, name) >= getattr(less, name), name


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        *((sizing.rate, text, value) for text, value in {"2000/s": 2_000, "90/min": 1.5, "36/h": 0.01, "864/d": 0.01}.items()),
        *((sizing.span, text, value) for text, value in {"40ms": 0.04, "1.5s": 1.5, "5 min": 300, "7d": 604_800}.items()),
        *((sizing.data, text, value) for text, value in {"900": 900, "900B": 900, "20kB": 20_000, "1MB": 1_000_000}.items()),
    ],
)  # fmt: skip
def test_a_unit_is_read(read: object, text: str, value: float) -> None:
    assert callable(read)
    assert read(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"--items": "2000"}, "--items: a rate is a number of items with /s, /min, /h or /d, as in 2000/s, not '2000'"),
        ({"--items": "20/ms"}, "--items: a rate is"),
        ({"--items": "0/s"}, "--items: '0/s' must be above 0"),
        ({"--keep": "9" * 400 + "d"}, f"--keep: '{'9' * 400}d' must be above 0 and below 1e15"),
        ({"--bytes": "9" * 400}, f"--bytes: '{'9' * 400}' must be above 0"),
        ({"--sites": "9" * 400}, "--sites: a whole number from 1, below 1e15, not 99"),
        ({"--keep": "7"}, "--keep: a time is a number with ms, s, min, h or d, as in 40ms or 7d, not '7'"),
        ({"--handler": "5m"}, "--handler: a time is"),
        ({"--handler": ""}, "--handler: a time is"),
        ({"--bytes": "9GB"}, "--bytes: a size is a number of bytes, or one with B, kB or MB"),
        ({"--bytes": "2MB"}, "--bytes: an item has at most"),
        ({"--sites": "0"}, "--sites: a whole number from 1, below 1e15, not 0"),
    ],
)
def test_a_wrong_unit_is_an_error_that_shows_a_right_one(
    change: dict[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = list(TYPED)
    for name, value in change.items():
        typed[typed.index(name) + 1] = value
    assert run(*typed) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"kq: {words}")
    assert (out, err.count("\n")) == ("", 1)


def test_the_command_prints_each_number_with_its_formula(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*TYPED) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^(\S.*?)  +(\S.*)$", out, re.MULTILINE) == [
        ("threads", "115 for each site"),
        ("processes", "9 for each site"),
        ("partitions", "18"),
        ("disk", "5.3 TB"),
        ("brokers", "3"),
        ("first limit", "threads"),
    ]
    assert "2,000 items a second × 40 ms = 80 at work at once; ÷ 0.7" in out
    assert max(map(len, out.splitlines())) <= 96
    assert run(*TYPED, "--json") == 0
    assert json.loads(capsys.readouterr().out)["limits"]["threads"] == 2_875
