"""A record as a client gives it, for tests without a broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Rec:
    """A record of partition 0."""

    at: int
    name: bytes | None = None
    more: list[tuple[str, bytes | None]] | None = None
    data: bytes | None = b"data"
    time: int = 0
    count: int = 1
    epoch: int | None = None

    def offset(self) -> int:
        return self.at

    def partition(self) -> int:
        return 0

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.data

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.more

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time

    def delivery_count(self) -> int:
        return self.count

    def leader_epoch(self) -> int | None:
        return self.epoch

    def error(self) -> None:
        return None
