"""A site's state for the copy of its queue: only what its next owner can read is written."""

from __future__ import annotations

import pytest

from kqlib.errors import NotAllowed
from kqlib.queue import moving
from kqlib.queue.ledger import BUDGET, Ledger

TOPIC = "u8F_x-3kTUqPZr2bGv0aWg"


@pytest.mark.parametrize(("each", "fits"), [(BUDGET, True), (100, False)])
def test_a_state_that_its_next_owner_cannot_read_is_not_written(each: int, fits: bool) -> None:
    """each: items in a transaction of the copy. The mark behind them is an offset, and cuts what was one run of open items."""
    full = Ledger(0, BUDGET - 1, epoch=7, topic=TOPIC)
    full.reopen(0, BUDGET - 1, 1, BUDGET)
    there = {at: at + at // each for at in range(full.top)}
    new = moving._anew(full, there, max(there.values()) + 1, TOPIC)
    if fits:
        assert list(Ledger.read(moving._text(new, 0), new.floor).runs()) == [(0, BUDGET - 1, 1)]
        return
    with pytest.raises(NotAllowed, match="partition 0 has too many open items between done ones"):
        moving._text(new, 0)
