"""The playground of schemas: what a reader makes of a writer's event, for every choice of its three lists."""

from __future__ import annotations

from itertools import product

import pytest

from kqlib.errors import NotAllowed
from kqlib.schemas import LEVELS
from kqlib.workshop.play.schemas import KNOWN, draw, schemas


def test_what_cannot_be_read_stands_at_its_field() -> None:
    text = schemas().set(reader="v1", writer="v3", level="FULL").picture.text
    assert text.splitlines()[0] == "v1 cannot read v3 · FULL does not let v3 follow v1"
    assert "number    number: 8             *✗ other type*" in text
    assert "min       –                     *✗ no default*" in text
    assert "number, v1 reads: long cannot become int" in text


@pytest.mark.parametrize(("reader", "writer"), [*product(KNOWN, ["v3"]), *product(["v3"], KNOWN)])
def test_every_choice_is_drawn(reader: str, writer: str) -> None:
    table = draw(reader, writer, "FULL")
    reads = table.title.startswith(f"{reader} reads {writer} · ")
    assert reads == ("✗" not in table.text)


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_says_whether_the_later_may_follow_the_earlier(level: str) -> None:
    first, second = (draw(*pair, level).title.split(" · ")[1] for pair in (("v4", "no-default"), ("no-default", "v4")))
    assert first == second
    allowed = level in {"NONE", "FORWARD", "FORWARD_TRANSITIVE"}
    assert first == f"{level} {'lets' if allowed else 'does not let'} no-default follow v4"


def test_a_choice_that_there_is_not_is_refused() -> None:
    with pytest.raises(NotAllowed, match="reader cannot be 'v9'"):
        schemas().set(reader="v9")
