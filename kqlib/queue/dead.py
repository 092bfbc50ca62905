"""Dead letters: what a buried item carries, and how it is put back.

In:  an item and why it failed. Out: the record for `<queue>.dead`, with the whole story in headers; and the way back. Pure.

    kq-origin      topic/partition/offset of the item, which is still in its log
    kq-dead-site   who gave up on it
    kq-attempts    how often it was handed out
    kq-reason      why it was buried
    kq-created     when it was put, kq-buried when it was buried: milliseconds since 1970
    kq-site        the site of kq-dead-site again: all other sites count the letter as done
    kq-again       on a redriven item: its kq-origin, so that an audit can tell it from one that was discarded
    kq-deaths      how often it was dead, if more than once; a redriven item keeps it
    kq-cut         what was shortened (reason) or left out (headers, data, key) so that the record fits; the origin has it
"""

from __future__ import annotations

import time

from kqlib.queue.item import AGAIN, BY, DEATHS, DELAY, DUE, ITEM, SITE, Headers, Out, Record, size

DEAD = ".dead"
STORY = (
    *("kq-origin", "kq-dead-site", "kq-attempts", "kq-reason", "kq-created", "kq-buried", "kq-cut"),
    *(SITE, DUE, DELAY, ITEM, BY, AGAIN, DEATHS),
)
REDRIVE_BYTES = 600  # bytes that `back` adds to what was put: the names of a site, of a topic, three numbers
KEPT = {"kq-origin": AGAIN, DEATHS: DEATHS}  # headers of a letter that a redriven item keeps, and their names there


def letter(record: Record, *, origin: str, site: str, attempts: int, reason: str, partitions: int, limit: int) -> Out:
    """The record for the dead-letter topic. It is cut until it fits: an item must never stick."""
    topic, partition, _ = origin.rsplit("/", 2)
    value = record.value()
    key = record.key()
    own = [each for each in record.headers() or [] if each[0] not in STORY]
    cuts: list[str] = []
    for cut in ("", "reason", "headers", "data", "key"):
        if cut:
            cuts.append(cut)
        short = reason if "reason" not in cuts else reason[:200]
        story = _story(record, origin=origin, site=site, attempts=attempts, reason=short, cuts=cuts)
        headers = (own if "headers" not in cuts else []) + story
        kept, kept_key = value if "data" not in cuts else None, key if "key" not in cuts else None
        if size(kept, kept_key, headers) <= limit:
            break
    return Out(topic + DEAD, kept, kept_key, headers, int(partition) % partitions)


def writable(text: str) -> str:
    """The same text with each lone surrogate as its escape: UTF-8 has none."""
    return text.encode(errors="backslashreplace").decode()


def reason(error: BaseException) -> str:
    """An exception in words: its name, and its text if it has one that can be read."""
    try:
        text = str(error)
    except Exception as worse:
        text = f"its text cannot be read ({type(worse).__name__})"
    return f"{type(error).__name__}: {text}"


def deaths(record: Record) -> int:
    """How often it was dead: of an item that was redriven, or of a letter that was dead before."""
    marks = dict(record.headers() or ())
    count = marks.get(DEATHS) or b""
    return int(count) if count.isdigit() and len(count) < 9 else int(AGAIN in marks)


def _story(record: Record, *, origin: str, site: str, attempts: int, reason: str, cuts: list[str]) -> Headers:
    died = deaths(record) + 1
    story = {
        "kq-origin": origin,
        "kq-dead-site": site,
        "kq-attempts": str(attempts),
        "kq-reason": reason,
        "kq-created": str(record.timestamp()[1]),
        "kq-buried": str(round(time.time() * 1000)),
        SITE: site,
        **({DEATHS: str(died)} if died > 1 else {}),
        **({"kq-cut": ", ".join(cuts)} if cuts else {}),
    }
    return [(name, writable(value).encode()) for name, value in story.items()]


def back(record: Record, topic: str, site: str) -> Out:
    """The record that puts a dead item back: the original bytes, key and headers, for this site only."""
    headers = record.headers() or []
    own = [each for each in headers if each[0] not in STORY]
    kept = [(KEPT[name], value) for name, value in headers if name in KEPT]
    return Out(topic, record.value(), record.key(), [*own, (SITE, site.encode()), *kept])
