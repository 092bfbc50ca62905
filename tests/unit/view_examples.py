"""Pictures that the tests share, and what is written where in an SVG."""

import re
from dataclasses import dataclass
from xml.etree import ElementTree

from kqlib.workshop.promises.values import Verdict
from kqlib.workshop.view import (
    Band,
    Block,
    Broker,
    Column,
    Delivery,
    Ladder,
    Lane,
    Member,
    Partition,
    Placed,
    Placing,
    Record,
    Row,
    Slot,
    Table,
    bands,
    cluster,
    crash,
    curve,
    deliveries,
    grid,
    group,
    keys,
    links,
    log,
    matrix,
    owners,
    parts,
    picture,
    record,
    svg,
    timeline,
    wire,
)
from kqlib.workshop.view.lane import STATES
from kqlib.workshop.view.matrix import drawn

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


@dataclass(frozen=True)
class Call:
    """A request as the wire has it."""

    client: str
    pid: int
    api: str
    nth: int
    what: str = ""
    broker: int = 1
    error: str = ""
    accident: str = ""
    poll: bool = False


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


FOUR = [Slot(f"p{n}", lag) for n, lag in enumerate((120, 3000, 0, 77))]
EVERY = [
    Member("ann", ["p0"]),
    Member("ben", ["p1"], busy=True),
    Member("", ["p2"]),
    Member("idle one"),
    Member("", [], busy=True),
]
TIMES = [
    Column("ann, ben join"),
    Column(),
    Column("cem joins", "4 of 6"),
    Column(),
    Column("ann crashes", "2 of 6"),
    Column(),
]
ROWS = [
    Row("ann", [Block(1, 1), Block(1, 3), Block(1, 3)], frozenset({1, 2, 3}), frozenset({3}), frozenset({4})),
    Row("ben", [Block(1, 1), Block(1, 5), Block(1, 5), Block(5, 5)], frozenset({1, 2, 3, 4, 5})),
    Row("cem", [Block(3, 5), Block(3, 5)], frozenset({3, 4, 5})),
    Row("dia", [], frozenset({3, 4, 5})),
]
QUEUES = {"ARS-CHE": 0, "LIV-MUN": 0, "INT-MIL": 1}
CRASHES = {
    ("at-most-once", "write"): (0, 10, 0),
    ("at-most-once", "commit"): (1, 9, 0),
    ("at-least-once", "write"): (0, 9, 1),
    ("at-least-once", "commit"): (0, 10, 0),
}
AUDIT = {0: "once once once missing once", 1: "once missing doubled once"}
ITEMS = [(number, offset, verdict) for number, lane in AUDIT.items() for offset, verdict in enumerate(lane.split())]
SPLIT = [
    Partition("football", 0, 1, [1, 2, 3], [1, 2], epoch=3, ends={1: 10, 2: 10, 3: 4}),
    Partition("football", 1, -1, [1, 3], [3], epoch=5, ends={1: 7, 3: 9}),
]
MOVED = [
    Placing("murmur2", 3, [Placed("A", 0), Placed("B", 0), Placed("C", 0)]),
    Placing("crc32", 3, [Placed("A", 2), Placed("B", 0), Placed("C", 1)]),
]
FIRST, BACK = "first in, first out", "released comes back"
AUTO = {"auto-commit": {FIRST: Verdict(True, 10), BACK: Verdict(False, 3, "1 never came")}}
LEASES = {"leases": {FIRST: Verdict(True, 10), BACK: Verdict(True, 3)}}
COSTS = {"auto-commit": {"costs": "0 commits"}, "leases": {"costs": "1 commit"}}
NO = "v1 cannot read v2 at 'min': the writer has no such field, and it has no default (rule: no default)"


@dataclass(frozen=True)
class Pair:
    """An outcome as the matrix shows it."""

    reader: str
    writer: str
    rule: str = ""
    why: str = ""
    java: str = ""


TEN = [f"a schema with a long name {n}" for n in range(10)]
PAIRS = [Pair("v1", "v1", "", "v1 reads v1"), Pair("v1", "v2", "no default", NO)]
PAIRS += [Pair("v2", "v1", "", "v2 reads v1"), Pair("v2", "v2", "", "v2 reads v2")]

# what the docstrings of the modules show
TABLES = {
    "table": Table(
        [["read first", 3, 0], ["work first", 0, 3]],
        ["order", "lost", "doubled"],
        "four orders, each crashed at one point",
    ),
    "ladder": Ladder(AUTO | LEASES, COSTS),
    "matrix": matrix(PAIRS),
}
EXAMPLES = {
    "bands": bands(
        [Band("flush after each", 20, None, "at least 20 ×"), Band("acks=1", 0.5, 2, "between 1/2 and 2 ×")],
        "seconds for each item, compared with 'batches'",
    ),
    "cluster": cluster([Broker(1, controller=True), Broker(2)], SPLIT, "football"),
    "crash": crash(["at-most-once", "at-least-once"], ["write", "commit"], CRASHES),
    "curve": curve(
        {"ARS": [3, 4, 7, 7], "CHE": [0, 3, 4, 7]}, "points after each round", step="round", events={3: "cup final"}
    ),
    "deliveries": deliveries(
        [
            Delivery("first life", 1, 0, 3, "killed", "read, work, write"),
            Delivery("second life", 2, 4, 8, "ack", "read, work, write, commit"),
        ],
        "INT-MIL",
    ),
    "grid": grid(ITEMS, "football"),
    "group": group(
        [Member(holds=["p0", "p1"]), Member(holds=["p2", "p3"], busy=True), Member()],
        [Slot("p0", 3), Slot("p1", 9), Slot("p2"), Slot("p3"), Slot("p4")],
        "scores",
    ),
    "keys": keys(MOVED, "football"),
    "links": links(["Arsenal", "Chelsea"], ["scoreboard", "ticker", "radio"]),
    "log": log(FOOTBALL, "football"),
    "owners": owners(QUEUES, {"node A": [0], "node B": [1]}, "games"),
    "record": record(
        b'{"home": 1, "away": 0}',
        "ARS-CHE",
        timestamp=(1, 1700000000000),
        headers=[("kind", b"goal")],
        topic="football",
        partition=0,
        offset=41,
    ),
    "timeline": timeline(
        [Column("ann, ben join"), Column(), Column("cem joins", "2 of 6"), Column()],
        [
            Row("ann", [Block(1, 1), Block(1, 3), Block(1, 3)], frozenset({1, 3})),
            Row("ben", [Block(1, 3), Block(1, 1), Block(1, 3)], frozenset({1, 3})),
            Row("cem", [Block(3, 3), Block(3, 3)], frozenset({3})),
        ],
        "scores",
    ),
    "wire": wire(
        [
            Call("worker", 1, "Produce", 1, "results/0 ×1, acks=all"),
            Call("worker", 1, "OffsetCommit", 1, "games/0 = 1", accident="killed before"),
            Call("worker", 2, "Heartbeat", 1, poll=True),
            Call("worker", 2, "OffsetFetch", 1, "games/0 = 0"),
        ],
        "one item",
    ),
}
GALLERY = {
    "no request": wire([]),
    "what is committed": cluster(
        [Broker(number) for number in (1, 2, 3)],
        [Partition("careless", 0, 1, [1, 2, 3], [1, 2, 3], epoch=0, ends={1: 11, 2: 1, 3: 1}, committed=1)],
        "careless",
    ),
    "brokers with notes under a long title": cluster(
        [Broker(1, note="paused"), Broker(2, alive=False, controller=True, note="cut off"), Broker(3)],
        SPLIT,
        "100 sent, 100 acknowledged, 100 failed, 100 on the way",
    ),
    "a request with everything": wire(
        [Call("a client with a name " * 9, 1, "Fetch" * 9, 10**9, "topic " * 40, 5, "AN_ERROR" * 5, "killed after")]
    ),
    "a hundred requests of twelve clients to nine brokers": wire(
        [
            Call(
                f"client {n % 12}",
                n % 12,
                "Produce",
                n,
                "games/0 ×1",
                n % 9 + 1,
                "NOT_LEADER" * (n % 7 == 0),
                "request lost" * (n % 5 == 0),
            )
            for n in range(100)
        ],
        "many",
    ),
    "no lanes": log([]),
    "huger offsets": log([Lane(0, plain(40, 10**15), low=10**15, floor=10**15)]),
    "hundred partitions": log([Lane(p, plain(p % 7)) for p in range(100)]),
    "notes": log([Lane(0, [Record(n, "A", state, "a long note", 12) for n, state in enumerate(STATES)])]),
    "hostile": log([Lane(0, [Record(n, key, note=HOSTILE[0]) for n, key in enumerate(HOSTILE_KEYS)])], HOSTILE[1] * 50),
    "by key": log(
        [Lane(p, [Record(n, GAMES[n % 5] if n % 3 else None, STATES[n % 6]) for n in range(12)]) for p in (0, 1)],
        colour="key",
    ),
    "hundreds of letters": log([Lane(p, [Record(n, f"key-{p}-{n}") for n in range(40)]) for p in range(8)]),
    "wide letters": log([Lane(0, plain(40))], letters=dict.fromkeys(GAMES, "WMWM")),
    **EXAMPLES,
    "no brokers": cluster([], []),
    "nine brokers": cluster(
        [Broker(n, alive=n != 4, controller=n == 7) for n in range(9)],
        [Partition("t", n, n % 9, range(n % 9 + 1), [n % 9], 99999, {n % 9: 10**7}) for n in range(24)],
    ),
    "long topics": cluster(
        [Broker(n) for n in range(4)],
        [Partition(name * 30, 0, None, [0, 9], []) for name in ("a-topic", HOSTILE[1])],
        HOSTILE[0],
    ),
    "parts": parts([(b"\x00", "magic byte", "always 0"), (bytes(20), "a long part", "x" * 300)], "a message"),
    "no parts": parts([]),
    "many parts": parts([(bytes([n]), f"part {n}", str(n)) for n in range(60)]),
    "hostile parts": parts([(b"", HOSTILE[0], HOSTILE[1]), (b"\xff", HOSTILE[3], HOSTILE[2])], HOSTILE[4]),
    "nothing in it": record(None),
    "large record": record(
        "日" * 10**5,
        b"\xff" * 10**5,
        timestamp=(1, 1),
        headers=[("n" * 99, b"\xff" * 9999)] * 9,
        topic="t" * 249,
        partition=10**4,
        offset=10**15,
    ),
    "hostile record": record(HOSTILE[0], HOSTILE[2], headers=[(HOSTILE[1], HOSTILE[5])], topic=HOSTILE[3]),
    "no links": links([], []),
    "named links": links([*HOSTILE], ["web", "w" * 99]),
    "matrix": drawn(PAIRS, "schemas"),
    "ten writers": drawn([Pair(r, w, "lost branch") for r in TEN for w in TEN]),
    "no pairs": drawn([]),
    "a pair is missing": drawn([Pair("a", "b"), Pair("c", "<d>", "other type", java="✓")]),
    "crash table, hostile": crash([HOSTILE[0]], HOSTILE[1:5], {(HOSTILE[0], HOSTILE[1]): (1, 10**12, 0)}, HOSTILE[8]),
    "no crashes": crash([], [], {}),
    "curve, hostile": curve(
        {word: [1, 2] for word in HOSTILE}, HOSTILE[0], step=HOSTILE[1], events={1: HOSTILE[0], 2: HOSTILE[8]}
    ),
    "names that end side by side": curve({name: [1, 5] for name in "abcd"}),
    "names that end at the foot": curve({name: [5, 0] for name in "abcdef"} | {"g": [5, 5]}),
    "lines of different lengths": curve({"a": [1, 2, 3], "b": [4], "c": []}),
    "no lines": curve({}),
    "deliveries, hostile": deliveries(
        [Delivery(word, 1, at, at + 9, "killed", word) for at, word in enumerate(HOSTILE)]
    ),
    "no deliveries": deliveries([]),
    "a moment": deliveries([Delivery("w", 1, 5, 5)]),
    "thousand items": grid((0, offset, "once") for offset in range(1000)),
    "no items": grid([], HOSTILE[0]),
    "a group": group(EVERY, FOUR, "scores"),
    "no members": group([], []),
    "hundreds": group(
        [Member(f"m{n}", [f"p{n}"]) for n in range(100)],
        [Slot(f"p{n}", 10**15 if n == 7 else n) for n in range(200)],
        "x" * 300,
    ),
    "long names and huge lags": group([Member("m" * 99, ["t" * 99])], [Slot("t" * 99, 10**15)], "x" * 99),
    "hostile group": group([Member(w, [w], True) for w in HOSTILE], [Slot(w, 7) for w in HOSTILE], HOSTILE[0]),
    "a timeline": timeline(TIMES, ROWS, "scores"),
    "no time": timeline([], ROWS[3:]),
    "many partitions": timeline(TIMES, [Row("ann", [Block(1, 3)] * 30, frozenset({1})), *ROWS]),
    "hostile times": timeline(
        [Column(word, "1 of 2") for word in HOSTILE], [Row(word) for word in HOSTILE], HOSTILE[1]
    ),
    "nobody has one": owners(QUEUES, {"node A": [0], "node B": []}, "games"),
    "no nodes": owners(QUEUES, {}),
    "hundreds of nodes": owners({f"q{n}": n % 50 for n in range(200)}, {f"n{n}": [n] for n in range(49)}, "x" * 300),
    "hostile nodes": owners(dict.fromkeys(HOSTILE, 0), {word: [n] for n, word in enumerate(HOSTILE)}, HOSTILE[0]),
}


def boxes(shown):
    """Every text of a picture: its words, font size, and where it is."""
    found = []

    def walk(element, dx, dy):
        if moved := re.fullmatch(r"translate\(([\d.-]+),([\d.-]+)\)", element.get("transform", "")):
            dx, dy = dx + float(moved[1]), dy + float(moved[2])
        if element.tag == f"{SVG}text":
            kind = (element.get("class") or "").split()
            size = 12 if "big" in kind else 10
            shown_words = "".join(element.itertext())
            wide = (
                picture.columns(shown_words) * 0.61 * size
                if "mono" in kind
                else svg.width(shown_words, size, bold="bold" in kind)
            )
            x, y = float(element.get("x")) + dx, float(element.get("y")) + dy
            x -= {"middle": wide / 2, "end": wide}.get(element.get("text-anchor"), 0)
            found.append((shown_words, kind, (x, y - 0.75 * size, x + wide, y + 0.2 * size)))
        for child in element:
            walk(child, dx, dy)

    walk(ElementTree.fromstring(shown.svg), 0, 0)
    return found


def words(shown):
    """Every text of a picture."""
    return [shown_words for shown_words, _, _ in boxes(shown)]
