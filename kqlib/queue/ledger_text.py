"""How a ledger is written: the text that is committed beside its floor, in versions. Written and read nowhere but here.

In:  a state. Out: its text; and of a text and a floor the state, or `LedgerCorrupt`: never a guess. Pure.

    1 <epoch> <topic id> <base85 of: tail, runs, checksum>      ASCII, at most 4,095 characters
    2 <epoch> <topic id> <base85 of: leader, tail, runs, checksum>
    leader      the leader epoch under which the log was read, + 1, in 4 bytes; 0: not known. No record below top has a higher one
    tail        top - the end of the last run (0 where nothing is open: then floor and top are one)
    a run       gap since the run before (the first: 0), then length * 16 + attempts
    checksum    crc32 of the floor, the head and all that, 4 bytes: a text beside another floor is not this state
    numbers     7 bits a byte, the lowest first
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from kqlib.errors import LedgerCorrupt, NotAllowed

VERSION = 1  # written unless a site chooses another: every process of a site must be able to read it
CHARACTERS = 4_095  # Kafka refuses more (OFFSET_METADATA_TOO_LARGE)
HEAD = 59  # version, epoch, topic id, spaces
FRAME = 4 + 10 + 4  # the leader, the tail, the checksum
RUN_BYTES = (CHARACTERS - HEAD) * 4 // 5 - FRAME  # bytes for runs
MOST = 15  # attempts are counted up to here
FORM = re.compile(r"(\d+) (0|[1-9]\d{0,18}) ([A-Za-z0-9_-]{1,32}) (\S+)")


class State(NamedTuple):
    """The state that a text holds."""

    floor: int
    top: int
    epoch: int
    topic: str
    runs: list[tuple[int, int, int]]  # start, end, attempts of what is open
    leader: int = -1


def write(state: State, version: int) -> str:
    """The text of a state; in an older version, while older readers are about."""
    if version not in WRITERS:
        raise NotAllowed(f"a ledger is written in version {', '.join(map(str, WRITERS))}, not {version}")
    head, body = f"{version} {state.epoch} {state.topic}", WRITERS[version](state)
    return f"{head} {base64.b85encode(body + _checksum(state.floor, head, body)).decode()}"


def read(text: str, floor: int) -> State:
    """The state that has this text beside this floor."""
    form = FORM.fullmatch(text) if text.isascii() and len(text) <= CHARACTERS else None
    if not form or floor < 0:
        raise corrupt("it is not of the form '1 epoch topic-id state'")
    version = int(form[1])
    epoch = int(form[2])
    topic = form[3]
    if version not in READERS:
        known = ", ".join(map(str, READERS))
        raise corrupt(f"it is written in version {version} and this kqlib reads version {known}. Update kqlib")
    try:
        whole = base64.b85decode(form[4])
    except ValueError:
        raise corrupt("its state is not base85") from None
    body = whole[:-4]
    if whole[-4:] != _checksum(floor, text[: form.end(3)], body):
        raise corrupt(
            f"its checksum does not match the committed offset {floor} (a mirror changes the offset, and copies the state unchanged)"
        )
    top, runs, *leader = READERS[version](floor, body)
    state = State(floor, top, epoch, topic, runs, *leader)
    if write(state, version) != text:
        raise corrupt("nothing in this version writes it like that")
    return state


def number_bytes(number: int) -> int:
    """How many bytes it takes."""
    return max(1, (number.bit_length() + 6) // 7)


def corrupt(why: str) -> LedgerCorrupt:
    """The error for a text that cannot be read."""
    return LedgerCorrupt(
        f"The committed state cannot be read: {why}. Nothing is handed out and nothing was changed: the items are all in the log"
    )


def _write_1(state: State) -> bytes:
    """tail, then (gap, length * 16 + attempts) a run."""
    numbers = [state.top - (state.runs[-1][1] if state.runs else state.top)]
    before = state.floor
    for start, end, attempts in state.runs:
        numbers += (start - before, (end - start) * 16 + attempts)
        before = end
    out = bytearray()
    for number in numbers:
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7  # noqa: PLW2901 - 7 bits a byte
        out.append(number)
    return bytes(out)


def _read_1(floor: int, body: bytes) -> tuple[int, list[tuple[int, int, int]]]:
    """The top and the runs."""
    numbers = []
    number = 0
    shift = 0
    for byte in body:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(number)
            number = shift = 0
    if shift or len(numbers) % 2 == 0:
        raise corrupt("its runs are cut off")
    runs: list[tuple[int, int, int]] = []
    end = floor
    for gap, run in zip(numbers[1::2], numbers[2::2], strict=True):
        length, attempts = divmod(run, 16)
        if not length or (runs and not gap and runs[-1][2] == attempts) or (gap and not runs):
            raise corrupt("its runs are not in their shortest form")
        runs.append((end + gap, end + gap + length, attempts))
        end += gap + length
    if not runs and numbers[0]:
        raise corrupt("nothing is open, and yet its top is not its floor")
    return end + numbers[0], runs


def _write_2(state: State) -> bytes:
    """The leader, then as in version 1."""
    return (state.leader + 1).to_bytes(4, "big") + _write_1(state)


def _read_2(floor: int, body: bytes) -> tuple[int, list[tuple[int, int, int]], int]:
    """The top, the runs and the leader."""
    return *_read_1(floor, body[4:]), int.from_bytes(body[:4], "big") - 1


WRITERS: dict[int, Callable[[State], bytes]] = {1: _write_1, 2: _write_2}
READERS: dict[int, Callable[[int, bytes], tuple[Any, ...]]] = {1: _read_1, 2: _read_2}  # older ones stay


def _checksum(floor: int, head: str, body: bytes) -> bytes:
    return zlib.crc32(f"{floor} {head} ".encode() + body).to_bytes(4, "big")
