"""Lanes, clusters and records that the tests of pictures share, and what is written where in an SVG."""

import re
from xml.etree import ElementTree

from kqlib.workshop.view import Broker, Lane, Partition, Record, Table, cluster, links, picture, record

SVG = "{http://www.w3.org/2000/svg}"
GAMES = ["ARS-CHE", "LIV-MCI", "TOT-EVE", "NEW-AVL", "BHA-WHU"]
HOSTILE = [
    "<script>alert(1)</script>",
    "\"'&%#<>",
    "a\nb\tc\x00",
    "\u202eabc",
    "]]>",
    "\ud800",
    "日本語",
    "",
    "a" * 5000,
]
HOSTILE_KEYS = [*HOSTILE, *(key.encode("utf-8", "surrogatepass") for key in HOSTILE), b"\xff\xfe\x00", None]


def records(text, first=0):
    """Records from 'B✓ A C²': key and state as in the twin."""
    signs = {"✓": "done", "✕": "dead", "◷": "due", "¹": "claimed", "²": "claimed"}
    found = []
    for offset, word in enumerate(text.split(), first):
        state = "gone" if word == "░" else signs.get(word[1:], "waiting")
        found.append(Record(offset, None if state == "gone" else word[0], state, attempt=2 if "²" in word else 1))
    return found


def plain(n, first=0):
    """So many records of five games."""
    return [Record(offset, GAMES[offset % 5]) for offset in range(first, first + n)]


FOOTBALL = [
    Lane(0, records("░ ░ B✓ A✓ C² B✓ A◷ C✕ B¹ A C", 12), low=14, end=23, floor=16, read=21, start=12),
    Lane(1, records("D✓ E✓ D✓ E¹ D E D", 8), low=8, end=15, floor=11, read=12, start=8),
]


def docstring_pictures():
    """What the docstrings of the rooms show."""
    ends = [{1: 10, 2: 10, 3: 4}, {1: 7, 3: 9}]
    split = [
        Partition("football", 0, 1, [1, 2, 3], [1, 2], epoch=3, ends=ends[0]),
        Partition("football", 1, -1, [1, 3], [3], epoch=5, ends=ends[1]),
    ]
    return {
        "cluster": cluster([Broker(1, controller=True), Broker(2)], split, "football"),
        "record": record(
            b'{"home": 1, "away": 0}',
            "ARS-CHE",
            timestamp=(1, 1700000000000),
            headers=[("kind", b"goal")],
            topic="football",
            partition=0,
            offset=41,
        ),
        "flow": links(4, 5),
        "table": Table(
            [["read first", 3, 0], ["work first", 0, 3]],
            ["order", "lost", "doubled"],
            "four orders, each crashed at one point",
        ),
    }


def boxes(shown):
    """Every text of a picture: its words, font size, and where it is."""
    found = []

    def walk(element, dx, dy):
        if moved := re.fullmatch(r"translate\(([\d.-]+),([\d.-]+)\)", element.get("transform", "")):
            dx, dy = dx + float(moved[1]), dy + float(moved[2])
        if element.tag == f"{SVG}text":
            kind = (element.get("class") or "").split()
            size = 8 if "small" in kind else 12 if "big" in kind else 10
            said = "".join(element.itertext())
            wide = (
                picture.columns(said) * 0.61 * size
                if "mono" in kind
                else picture.width(said, size, bold="bold" in kind)
            )
            x, y = float(element.get("x")) + dx, float(element.get("y")) + dy
            x -= {"middle": wide / 2, "end": wide}.get(element.get("text-anchor"), 0)
            found.append((said, kind, (x, y - 0.75 * size, x + wide, y + 0.2 * size)))
        for child in element:
            walk(child, dx, dy)

    walk(ElementTree.fromstring(shown.svg), 0, 0)
    return found


def words(shown):
    """Every text of a picture."""
    return [said for said, _, _ in boxes(shown)]
