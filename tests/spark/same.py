"""Two frames are the same: names, types, rows in any order.

PySpark's own `assertDataFrameEqual` imports pandas-on-Spark, which pandas 3 broke (PySpark 4.1.3: no `DateOffset` there any more).
"""

from __future__ import annotations

from typing import Any


def same(found: Any, expected: Any) -> None:
    """Fail with the rows that only one of them has."""
    assert found.schema.simpleString() == expected.schema.simpleString()
    ours, theirs = sorted(map(str, found.collect())), sorted(map(str, expected.collect()))
    if ours != theirs:
        more, less = (sorted(set(a) - set(b))[:5] for a, b in ((ours, theirs), (theirs, ours)))
        raise AssertionError(f"{len(ours)} and {len(theirs)} rows; only found: {more}; only expected: {less}")
