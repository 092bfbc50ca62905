"""Two files of exercises and some answers that the tests of checks share; `solutions` (conftest.py) puts the files in place."""

TOPICS = '''
"""Answers to 01."""

from __future__ import annotations

from dataclasses import dataclass

from kqlib.workshop.checks import Case, Exercise, Tried


def partition(key, n):
    """The length of a key, as a hash."""
    return len(key) % n


def first_letter(key, n):
    return ord(key[0]) % n


ONE = Exercise(
    id="01.1",
    ask="Which of n partitions does a key go to?",
    cases=[
        Case(("ARS-CHE", 6), 1, "a key always goes to the same partition"),
        Case(("ARS-CHE", 2), 1, "the number of partitions matters"),
        Case(("", 4), 0, "an empty key is a key"),
        Case(("", 3), 0, "an empty key is a key"),
    ],
    hints=("Count first.", "len(key), then %."),
    solution=partition,
    wrong=(first_letter,),
)


@dataclass
class Log:
    """Records in a row."""

    records: list[str]

    def put(self, record):
        self.records.append(record)


def tried(answer):
    yield Tried("looking at it", isinstance(answer, type), True)
    log = answer([])
    log.put("a")
    yield Tried("putting one record", len(log.records), 1)
    log.put("b")
    yield Tried("putting another", log.records, ["a", "b"])


TWO = Exercise(id="01.2", ask="Write a log.", probe=tried, hints=("A list.",), solution=Log)


def sort_all(values):
    return sorted(values)


TEN = Exercise(id="01.10", ask="Sort a copy.", cases=[Case(([3, 1, 2],), [1, 2, 3])], solution=sort_all)
'''

REPLICAS = """
from kqlib.workshop.checks import Case, Exercise

THREE = Exercise(id="02.1", ask="Say yes.", cases=[Case((), True)], solution=lambda: True)
"""


def stub(key, n): ...


def right(key, n):
    print("prints are allowed")
    return len(key) % n


class Quiet:
    """A value whose repr tells its address."""
