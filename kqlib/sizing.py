"""How large a queue must be: partitions, brokers, disk, processes and threads, and what limits first. Without Kafka.

In:  a `Load`: items a second, bytes, how long they are kept, how long a handler takes, sites. Out: a `Size`: numbers, each with its
formula in words.

Every constant below is a row of a table in docs/costs.md, which says where it was measured. A plan uses `FULL` of what a thing can do,
and is enough while one process and one broker are away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from textwrap import fill
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.text import count
from kqlib.topic_rules import RECORD_BYTES

FULL = 0.7  # of what a thing can do at most
THREADS = 16  # in one process
PROCESS = 6_600  # items a second of a process whose handlers do nothing
MORE_BYTES = 100  # that a record with a short key needs beside its data, in a batch of its own
SEGMENT, SEGMENT_TIME = 1_073_741_824, 604_800  # bytes and seconds after which a new file begins: Kafka's defaults
PUT, WORKED = (
    0.25,
    0.19,
)  # ms of a broker's CPU for an item that is put, and for one that a site works on, one at a time
CORES, NETWORK = 4, 125_000_000  # of a broker: its cores, and bytes a second in each direction
REPLICAS = 3

TIMES = {"ms": 0.001, "s": 1, "min": 60, "h": 3_600, "d": 86_400}
BYTES = {"": 1, "B": 1, "kB": 1_000, "MB": 1_000_000}


def _measure(text: str, units: Mapping[str, float], before: str, wrong: str) -> float:
    """The number in this text times its unit."""
    found = re.fullmatch(rf"(\d+(?:\.\d+)?)\s*{before}([a-zA-Z]*)", text.strip())
    if not found or found[2] not in units:
        raise NotAllowed(f"{wrong}, not {text!r}")
    if not 0 < (number := float(found[1])) < 1e15:
        raise NotAllowed(f"{text!r} must be above 0 and below 1e15")
    return number * units[found[2]]


def rate(text: str) -> float:
    """Items a second: 2000/s, 90/min, 500/h or 1000000/d."""
    each = {name: 1 / seconds for name, seconds in TIMES.items() if name != "ms"}
    return _measure(text, each, "/", "a rate is a number of items with /s, /min, /h or /d, as in 2000/s")


def span(text: str) -> float:
    """Seconds: 40ms, 30s, 5min, 12h or 7d."""
    return _measure(text, TIMES, "", "a time is a number with ms, s, min, h or d, as in 40ms or 7d")


def data(text: str) -> int:
    """Bytes: 900, 900B, 20kB or 1MB (a kB has 1,000 bytes)."""
    size = ceil(_measure(text, BYTES, "", "a size is a number of bytes, or one with B, kB or MB, as in 900 or 20kB"))
    if size + MORE_BYTES > RECORD_BYTES:
        most = f"{RECORD_BYTES - MORE_BYTES:,} bytes"
        raise NotAllowed(f"an item has at most {most}, not {text!r}: store the data elsewhere, and put its address")
    return size


@dataclass(frozen=True)
class Load:
    """What a queue has to carry. Times are in seconds."""

    items: float
    data: int
    keep: float
    handler: float
    sites: int = 1


@dataclass(frozen=True)
class Size:
    """What a load needs. Processes and threads are those of one site; `limits` has the rate at which each thing is used up."""

    partitions: int
    brokers: int
    disk: int
    processes: int
    threads: int
    limits: dict[str, int]
    formulas: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """All of it, for programs."""
        return asdict(self)

    def __repr__(self) -> str:
        numbers = {
            "threads": f"{self.threads:,} for each site",
            "processes": f"{self.processes:,} for each site",
            "partitions": f"{self.partitions:,}",
            "disk": amount(self.disk),
            "brokers": f"{self.brokers:,}",
            "first limit": min(self.limits, key=self.limits.__getitem__),
        }
        lines = []
        for name, number in numbers.items():
            formula = fill(self.formulas[name], 96, initial_indent="    ", subsequent_indent="    ")
            lines.append(f"{name:<13} {number}\n{formula}")
        return "\n".join(lines)


def size(load: Load) -> Size:
    """The smallest size that carries this load."""
    words = {}
    busy = load.items * load.handler
    threads = max(1, ceil(_less(busy / FULL)))
    words["threads"] = (
        f"{shown(load.items)} items a second × {lasting(load.handler)} = {shown(busy)} at work at once; ÷ {FULL}, "
        f"since no thread works all the time"
    )
    by_threads, by_items = ceil(threads / THREADS), ceil(_less(load.items / PROCESS / FULL))
    processes = max(by_threads, by_items) + 1
    words["processes"] = (
        f"{count(threads, 'thread')} ÷ {THREADS} in a process = {by_threads:,}; {shown(load.items)} items a second ÷ "
        f"{PROCESS:,} of a process ÷ {FULL} = {by_items:,}; the larger one, and 1 more, since one may be away"
    )
    partitions = 2 * processes
    words["partitions"] = (
        f"2 × {count(processes, 'process', 'processes')}: the shares stay nearly equal when one is away. "
        "A partition has one owner in each site, so it carries what a process carries"
    )
    record = load.data + MORE_BYTES
    kept = load.items * record * load.keep
    rolled = min(SEGMENT, load.items / partitions * record * SEGMENT_TIME)
    disk = ceil((kept + partitions * rolled) * REPLICAS / FULL)
    words["disk"] = (
        f"({shown(load.items)} items a second × ({load.data:,} + {MORE_BYTES} bytes) × {lasting(load.keep)} + "
        f"{count(partitions, 'partition')} × {amount(rolled)} of a file that is not full yet, since only whole files go) "
        f"× {REPLICAS} replicas ÷ {FULL}"
    )
    work = (PUT * REPLICAS + WORKED * load.sites) / 1_000  # seconds of CPU for an item, in all brokers
    sent = record * max(REPLICAS, REPLICAS - 1 + load.sites)  # bytes of an item, in the busier direction
    cores, links = ceil(_less(load.items * work / CORES / FULL)), ceil(_less(load.items * sent / NETWORK / FULL))
    brokers = max(REPLICAS, max(cores, links) + 1)
    words["brokers"] = (
        f"{REPLICAS} replicas need {REPLICAS}; CPU: {shown(load.items)} items a second × ({PUT} ms × {REPLICAS} replicas + "
        f"{WORKED} ms × {count(load.sites, 'site')}) ÷ {CORES} cores ÷ {FULL} = {cores:,}; network: {shown(load.items)} × "
        f"{amount(sent)} ÷ {amount(NETWORK)} a second ÷ {FULL} = {links:,}; the larger one, and 1 more, since one may be away"
    )
    limits = {
        "threads": threads / load.handler,
        "processes": processes * PROCESS,
        "brokers' CPU": brokers * CORES / work,
        "brokers' network": brokers * NETWORK / sent,
    }
    rates = {name: int(rate) for name, rate in sorted(limits.items(), key=lambda each: each[1])}
    words["first limit"] = "used up at " + ", ".join(f"{at:,} items a second: {name}" for name, at in rates.items())
    return Size(partitions, brokers, disk, processes, threads, rates, words)


def _less(number: float) -> float:
    """Without the last digits, which are the computer's: 80 × 0.1 ÷ 0.1 is not above 80."""
    return round(number, 9)


def shown(number: float) -> str:
    """2,000 or 0.04."""
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"


def lasting(seconds: float) -> str:
    """40 ms, or 7 d."""
    unit = max((name for name in TIMES if TIMES[name] <= seconds), key=TIMES.__getitem__, default="ms")
    return f"{shown(seconds / TIMES[unit])} {unit}"


def amount(size: float) -> str:
    """3.6 TB; at least two digits."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:,.1f} TB"
