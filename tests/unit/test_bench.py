"""What `python -m bench` can print. Nothing is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import NAMED, PARTS, WARM, main
from bench.peers import PEERS

BENCH = Path(__file__).resolve().parents[2] / "bench"


def test_every_part_is_a_file_and_every_file_that_measures_is_a_part() -> None:
    measure = [path for path in BENCH.rglob("*.py") if "\ndef measured()" in path.read_text()]
    assert sorted(path.parent.name if path.stem == "__init__" else path.stem for path in measure) == sorted(PARTS)
    assert {*NAMED, *WARM} <= {*PARTS}


def test_a_part_that_is_misspelt_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="there is no part 'latencies' to measure; there are starts, shapes"):
        main("1", "latencies")


def test_every_peer_has_its_program_and_its_pinned_packages() -> None:
    for kind in {kind for kind, _ in PEERS.values()}:
        assert (BENCH / "peers" / f"on_{kind}.py").exists()
        pins = (BENCH / "peers" / f"{kind}.txt").read_text().split() if kind != "kqlib" else ["kqlib==here"]
        assert pins and all("==" in pin for pin in pins)
