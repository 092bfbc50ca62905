"""The map of virtual queues is well drawn, says the same in words, and minds any number of anything."""

import pytest

from kqlib.workshop.view.owners import owners
from tests.unit.test_view_drawn import assert_well_drawn
from tests.unit.view_examples import HOSTILE

QUEUES = {"ARS-CHE": 0, "LIV-MUN": 0, "INT-MIL": 1}
GALLERY = {
    "as in the docstring": owners(QUEUES, {"node A": [0], "node B": [1]}, "games"),
    "nobody has one": owners(QUEUES, {"node A": [0], "node B": []}, "games"),
    "nothing at all": owners({}, {}),
    "no queues": owners({}, {"node A": [0, 1, 2]}),
    "no nodes": owners(QUEUES, {}),
    "hundreds": owners({f"q{n}": n % 50 for n in range(200)}, {f"n{n}": [n] for n in range(49)}, "x" * 300),
    "hostile": owners(dict.fromkeys(HOSTILE, 0), {word: [n] for n, word in enumerate(HOSTILE)}, HOSTILE[0]),
}


@pytest.mark.parametrize("name", GALLERY)
def test_a_map_is_well_formed_fits_and_no_words_touch(name) -> None:
    assert_well_drawn(GALLERY[name])


@pytest.mark.parametrize("name", GALLERY)
def test_hostile_words_stay_words(name) -> None:
    assert all(c.isprintable() or c == "\n" for c in GALLERY[name].text)
    assert GALLERY[name].text.splitlines()[0] == GALLERY[name].title


def test_a_map_in_words() -> None:
    assert GALLERY["as in the docstring"].text.splitlines() == [
        "games · 3 queues · 2 partitions · 2 nodes",
        "ARS-CHE  p0  node A",
        "LIV-MUN  p0  node A",
        "INT-MIL  p1  node B",
    ]
    assert GALLERY["nobody has one"].text.splitlines()[-1] == "INT-MIL  p1  nobody"


def test_a_line_goes_from_each_queue_to_its_partition_and_from_there_to_its_node() -> None:
    assert GALLERY["as in the docstring"].svg.count("class='hold'") == 3 + 2
    assert GALLERY["nobody has one"].svg.count("class='hold'") == 3 + 1
    assert GALLERY["nobody has one"].svg.count("class='box idle'") == 2  # the partition, and the node without one


def test_of_too_many_the_first_and_the_last_are_shown() -> None:
    lines = GALLERY["hundreds"].text.splitlines()
    assert lines[-1] == "… 180 more queues in between"
    assert len(lines) == 1 + 20 + 1
    assert lines[1].split() == ["q0", "p0", "n0"]
    assert lines[-2].split() == ["q199", "p49", "nobody"]
