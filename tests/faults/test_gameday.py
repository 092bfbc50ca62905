"""A game day is solved by what the commands print: every fault leaves a trace, can be repaired, and is seen to be repaired."""

from __future__ import annotations

from pathlib import Path

import pytest

from kqlib.workshop.gameday.game import draw
from tests.faults.gameday import FAULTS_EACH, MINUTES, SEEDS, Duty
from tests.patience import PATIENCE

# httpcore leaves the socket of a refused certificate to the collector
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl:ResourceWarning")
LOSE = {"topic-deleted", "short-retention"}  # what was not done yet is gone


@pytest.mark.parametrize("seed", SEEDS)
def test_a_game_is_solved_by_what_the_commands_print(seed: int, tmp_path: Path, figures: list[str]) -> None:
    report = Duty(tmp_path).play(seed, FAULTS_EACH, MINUTES * PATIENCE)
    names = [each["name"] for each in report["entries"]]
    figures.append(
        f"game day {seed}: {', '.join(names)}: {report['score']} points, {report['lost']} of {report['put']} lost"
    )
    assert set(names) == {each.name for each in draw(seed, FAULTS_EACH, MINUTES)}
    for each in report["entries"]:
        assert each["found"] and each["proven"] and each["repaired"], each
    assert report["wrong"] == [] and report["put"] > 0
    assert report["lost"] == 0 or LOSE & set(names), report["lost"]
    assert not {"gameday", "up.json"} & {path.name for path in tmp_path.iterdir()}, "the game has ended"
