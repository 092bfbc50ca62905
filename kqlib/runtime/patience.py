"""How long a lab waits for this machine: KQ_PATIENCE=3 where everything takes three times as long as on a quiet laptop.

In:  the environment. Out: `PATIENCE`, which multiplies how long labs, groups, embedded clusters, `kq.doctor` and `kq.promises` wait
before they give up. It does not change the queue's own times (lease, session, retry): those are promises.
"""

from __future__ import annotations

import os
import warnings

MOST = 100.0


def asked(text: str) -> float:
    """The factor that was asked for. What is not a number from 1 to 100 gives a warning and counts as 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 1 <= value <= MOST:
        return value
    warnings.warn(f"KQ_PATIENCE is a number from 1 to {MOST:g}, not {text!r}; it counts as 1", stacklevel=2)
    return 1.0


PATIENCE = asked(os.environ.get("KQ_PATIENCE", "1"))
