"""`kq queue list|show|depth|peek|story` on a team's own cluster: by a user who may only read, and over many queues at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kqlib.command import main as cli
from kqlib.kafka import Kafka
from kqlib.queue import Site
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.cluster import Cluster
from tests.patience import WAIT
from tests.promises.queues import alone, put
from tests.promises.rights import may

QUEUES = [f"looked-{number:02}" for number in range(22)]
SITES = ("eu", "us", "asia")
READ = ("READ topic cricket", "READ topic cricket.dead", "READ topic kq.queues")


@dataclass
class Kq:
    """`kq queue …` as a user of the cluster; all that it writes, librdkafka's own lines and those of threads too."""

    files: dict[str, Path]
    patch: pytest.MonkeyPatch
    capfd: pytest.CaptureFixture[str]

    def __call__(self, user: str, *words: str) -> tuple[int, str, str]:
        self.patch.setenv("KQ_KAFKA_CONFIG", str(self.files[user]))
        self.capfd.readouterr()
        code = cli.main(["queue", *words])
        return code, *self.capfd.readouterr()


@pytest.fixture
def kq(
    locked: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Kq]:
    files = {}
    for user in ("deploy", "app"):
        with locked.as_user(user) as seen:
            files[user] = tmp_path / user
            settings = {
                k: v for k, v in seen.client().items() if k.startswith(("bootstrap", "security", "sasl", "ssl"))
            }
            files[user].write_text("".join(f"{key}={value!s}\n" for key, value in settings.items()))
    files["wire"] = tmp_path / "wire"  # deploy, seen by the wire
    files["wire"].write_text(files["deploy"].read_text() + f"bootstrap.servers={locked.wire.bootstrap}\n")
    monkeypatch.delenv("KQ_BOOTSTRAP", raising=False)
    yield Kq(files, monkeypatch, capfd)


@pytest.fixture(scope="module")
def cricket(locked: Cluster) -> str:
    """A queue of two sites: one item buried, three waiting. Its buried item's id."""
    Plan({"cricket": QueueTopic(partitions=1)}).apply(locked, quiet=True)
    with alone(locked, "fans") as site:
        queue = site.queue("cricket")
        queue.put_many([(b"%d" % number, None) for number in range(4)])
        item = queue.claim(wait=WAIT)
        assert item
        queue.bury(item, "offside")
    with alone(locked, "press") as site:
        item = site.queue("cricket").claim(wait=WAIT)
        assert item
        site.queue("cricket").ack(item)
    return item.id


WORDS = {
    "story": ("cricket/0/0", "buried", "offside"),
    "show": ("cricket", "cricket, site fans", "items    3"),
    "peek": ("cricket", "cricket/0/1", "cricket/0/3"),
    "depth": ("cricket", "3", ""),
    "list": ("", "cricket", "fans"),
}


@pytest.mark.parametrize("word", WORDS)
def test_a_user_who_may_only_read_looks_at_a_queue_without_a_traceback(
    locked: Cluster, cricket: str, kq: Kq, word: str
) -> None:
    may(locked, *READ, "READ group fans")
    what, *seen = WORDS[word]
    code, out, err = kq("app", word, *[what][: len(what)], "--site", "fans")
    assert "Traceback" not in err and "FATAL" not in err
    assert code == 0, err
    for part in seen:
        assert part in out
    if word in ("story", "show"):  # the neighbour's state is not this user's to read
        assert "site" in out and "press" in out and "could not be read" in out


@pytest.mark.parametrize(
    ("word", "right"), [("story", READ[1]), ("show", READ[1]), ("list", READ[1]), ("depth", "READ group fans")]
)
def test_without_one_of_these_rights_there_is_a_sentence_or_what_can_be_read(
    locked: Cluster, cricket: str, kq: Kq, word: str, right: str
) -> None:
    may(locked, *({*READ, "READ group fans"} - {right}))
    what = WORDS[word][0]
    code, _, err = kq("app", word, *[what][: len(what)], "--site", "fans")
    assert "Traceback" not in err and "FATAL" not in err
    assert code in (0, 1) or err.startswith("kq: ")


def test_what_was_put_back_for_one_site_is_no_item_of_another(locked: Cluster, kq: Kq) -> None:
    Plan({"rugby": QueueTopic(partitions=1)}).apply(locked, quiet=True)
    with alone(locked, "north") as site:
        queue = site.queue("rugby")
        queue.put(b"try")
        item = queue.claim(wait=WAIT)
        assert item
        queue.bury(item)
        assert queue.redrive() == 1
    with Site(locked, "south") as site:
        site.queue("rugby")
    shown = [json.loads(kq("deploy", "show", "rugby", "--site", site, "--json")[1]) for site in ("north", "south")]
    assert [each["depth"] for each in shown] == [1, 1]
    assert [each["sites"] for each in shown] == [{"north": 1, "south": 1}] * 2


# --- many queues ------------------------------------------------------------------------------------------------------


def filled(cluster: Kafka, names: list[str]) -> None:
    """Queues with items, each used by all sites; of the first ones an item is done for the first site."""
    Plan({name: QueueTopic(partitions=2) for name in names}).apply(cluster, quiet=True)
    for name in names:
        for partition in (0, 1):
            put(cluster, name, *[b"x"] * (1 + int(name[-2:])), partition=partition)
    terms = {"order": "any", "max_attempts": 5}
    with alone(cluster, SITES[0]) as here:
        here._notes.write([((site, name, "terms"), terms) for site in SITES for name in names], here._sender())
        for name in {*names} & {*QUEUES[:2]}:
            item = here.queue(name).claim(wait=WAIT)
            assert item
            here.queue(name).ack(item)


def test_a_list_of_22_queues_asks_hardly_more_than_one_of_2(kq: Kq, locked: Cluster) -> None:
    def listed() -> tuple[list[dict[str, object]], dict[str, int]]:
        locked.wire.clear()
        _, out, _ = kq("wire", "list", "--site", SITES[0], "--json")
        found, _ = locked.wire.state()
        # how often it polls and looks for brokers is a question of time
        return json.loads(out), {api: number for api, number in found.items() if api not in ("Fetch", "Metadata")}

    filled(locked, QUEUES[:2])
    _, few = listed()
    filled(locked, QUEUES[2:])
    found, many = listed()
    rows = {row["queue"]: row for row in found}
    for number, name in enumerate(QUEUES):
        row = {"queue": name, "partitions": 2, "items": 2 * (1 + number) - (number < 2), "dead": 0}
        assert rows[name] == row | {"status": "used", "sites": sorted(SITES)}
    assert few
    assert sum(many.values()) < 2 * sum(few.values()), f"2 queues {few}, 22 queues {many}"
