"""Keys as letters: a cell of a picture has room for one.

In:  keys as Kafka has them (bytes), or str, or None.
Out: `letters(keys, known)`: key -> letter. A key that is one letter stays itself, any other gets A, B … Z, AA … in order of
first appearance. Pass the result on as `known`, and a key keeps its letter through a whole notebook.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from string import ascii_uppercase

from kqlib.text import Key, as_bytes, count, spelled

NO_KEY = "·"
MOST_KEYS = 24  # keys that a picture spells out


def letters(keys: Iterable[Key], known: Mapping[Key, str] | None = None) -> dict[Key, str]:
    """A letter for each key; those of `known` stay as they are."""
    found = {as_bytes(key): letter for key, letter in (known or {}).items()}
    distinct = dict.fromkeys(as_bytes(key) for key in keys)
    new = [key for key in distinct if key is not None and key not in found]
    own = {key: key.decode() for key in new if _one_letter(key)}
    own = {key: letter for key, letter in own.items() if letter not in found.values()}
    free = _free({*found.values(), *own.values()})
    for key in new:
        found[key] = own.get(key) or next(free)
    return {key: letter for key, letter in found.items() if key is not None}


@dataclass(frozen=True)
class Lettering:
    """The letters of one picture: which letter a key wears, and which letters have to be explained."""

    by_key: Mapping[Key, str]
    worn: tuple[Key, ...]

    @classmethod
    def of(cls, keys: Iterable[Key], known: Mapping[Key, str] | None) -> Lettering:
        """Letters for the keys of a picture's cells, in order of first appearance."""
        shown = [key for key in dict.fromkeys(as_bytes(key) for key in keys) if key is not None]
        by_key = letters(shown, known)
        return cls(by_key, tuple(key for key in shown if by_key[key] != spelled(key)))

    def __getitem__(self, key: Key) -> str:
        return NO_KEY if key is None else self.by_key[as_bytes(key)]

    def place(self, key: Key) -> int:
        """A key's number; the same as long as its letter is."""
        return list(self.by_key).index(as_bytes(key))

    def legend(self) -> list[tuple[str, str]]:
        """Letter and key; the last pair says how many are left out."""
        pairs = [(self[key], spelled(key)) for key in self.worn[:MOST_KEYS]]
        hidden = len(self.worn) - len(pairs)
        return [*pairs, ("…", count(hidden, "more key"))] if hidden else pairs


def _one_letter(key: bytes) -> bool:
    """Is it one letter? A digit is not: '121' could be key 1 at offset 21, or key 12 at 1."""
    try:
        readable = key.decode()
    except UnicodeDecodeError:
        return False
    return len(readable) == 1 and readable.isalpha()


def _free(taken: set[str]) -> Iterator[str]:
    """A, B … Z, AA, AB …, without those that are taken."""
    for length in itertools.count(1):
        for letter in itertools.product(ascii_uppercase, repeat=length):
            if "".join(letter) not in taken:
                yield "".join(letter)
