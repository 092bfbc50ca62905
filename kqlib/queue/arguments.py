"""What the verbs take, checked before anything is sent: wrong ones are `NotAllowed` (or `BadPayload`), with a sentence.

In:  an argument. Out: the same, or the error. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kqlib.errors import BadPayload, NotAllowed

LONGEST_DELAY = 15 * 60.0  # seconds
LONGEST_LEASE = 24 * 3600.0
MOST_ATTEMPTS = 14  # the ledger counts to 15, which means "15 or more"
OURS = "kq-"  # headers that begin like this are the queue's own
# The names of headers. The client would cut one at a NUL, and a lone surrogate is no text.
NAMES = re.compile("[^\0\ud800-\udfff]+")


def seconds(what: str, value: Any, least: float, most: float, why: str = "") -> float:
    """A number of seconds from least to most. why: what is wrong with more."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= most:
        raise NotAllowed(
            f"{what} is a number of seconds from {least:g} to {most:g}, not {value!r}{why * (number and value > most)}"
        )
    return float(value)


def delay(value: Any) -> float:
    """How long an item waits before it is due."""
    why = ". Longer ones keep their partition's ledger full; use a topic of its own and a clock"
    return seconds("delay", value, 0, LONGEST_DELAY, why)


def lease(value: Any) -> float:
    """How long a claimed item belongs to the process that claimed it."""
    return seconds("lease", value, 0.001, LONGEST_LEASE)


def wait(value: Any) -> float:
    """How long a claim waits for an item."""
    return seconds("wait", value, 0, 366 * 24 * 3600.0)


def count(what: str, value: Any, least: int = 1) -> int:
    """A whole number."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise NotAllowed(f"{what} is a whole number, at least {least}, not {value!r}")
    return value


def max_attempts(value: Any) -> int | None:
    """How often an item is handed out before it is buried."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_ATTEMPTS):
        return value
    raise NotAllowed(f"max_attempts is a whole number from 1 to {MOST_ATTEMPTS}, or None for no limit, not {value!r}")


def one_of(what: str, value: Any, *known: str) -> str:
    """One of a few words."""
    if value not in known or not isinstance(value, str):
        raise NotAllowed(f"{what} is {' or '.join(map(repr, known))}, not {value!r}")
    return value


def site_name(value: Any) -> str:
    """A site's name, which is its consumer group's too."""
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]([ -~]{0,198}[!-~])?", value):
        raise NotAllowed(f"a site's name is text of 1 to 200 printable ASCII characters, not {value!r}")
    return value


def data(value: Any) -> bytes | None:
    """A payload: bytes, or None."""
    return _bytes("put takes bytes", "data", value)


def key(value: Any) -> bytes | None:
    """A key: bytes, or None."""
    return _bytes("a key is bytes", "key", value)


def reason(value: Any) -> str:
    """Why an item is buried: text."""
    if not isinstance(value, str):
        raise NotAllowed(f"a reason is text, not {type(value).__name__}")
    return value


def _bytes(what: str, name: str, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    hint = f". Encode the text: {name}.encode()" if isinstance(value, str) else ""
    raise BadPayload(f"{what} or None, not {type(value).__name__}{hint}")


def headers(value: Any) -> list[tuple[str, bytes | None]]:
    """Headers: names and bytes."""
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise BadPayload(f"headers are a dict of names and bytes, not {type(value).__name__}")
    for name, content in value.items():
        if not isinstance(name, str) or name.startswith(OURS) or not NAMES.fullmatch(name):
            raise BadPayload(f"a header's name is text that does not begin with '{OURS}', without a NUL, not {name!r}")
        if content is not None and not isinstance(content, bytes):
            raise BadPayload(f"header {name!r} is bytes or None, not {type(content).__name__}")
    return list(value.items())
