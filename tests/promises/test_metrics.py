"""`kq metrics`: the numbers of queues and sites, from outside of the processes that work on them."""

from __future__ import annotations

import json
import re
import time

import pytest

import kqlib as kq
from kqlib.command.main import main
from kqlib.command.metrics import exposed
from kqlib.kafka import Kafka
from tests.patience import WAIT, until
from tests.promises.play import claimed, commit, put
from tests.promises.queues import taken, topic
from tests.unit.test_alerts import LABELS

GAUGE = re.compile(r"kqlib_(\w+)\{(.*)\} (\S+)")


def numbers(capsys: pytest.CaptureFixture[str], *typed: str) -> dict[tuple[str, ...], float]:
    """What `kq metrics` prints, by a gauge's name and its labels."""
    assert main(["metrics", *typed]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    found = [GAUGE.fullmatch(line) for line in lines]
    assert all(found), lines
    assert all({*re.findall(r'(\w+)="', each[2])} == LABELS[f"kqlib_{each[1]}"] for each in found if each)
    return {(each[1], *re.findall(r'"([^"]*)"', each[2])): float(each[3]) for each in found if each}


def test_the_numbers_are_those_of_each_site_and_nobody_who_works_is_asked(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    name = topic(kq_cluster, 2)
    eu, us = f"{name}-eu", f"{name}-us"
    with kq.Site(kq_cluster, eu) as first, kq.Site(kq_cluster, us) as second:
        queue = first.queue(name)
        queue.put_many([(b"%d" % number, b"key %d" % number) for number in range(7)])
        done, bad, *_ = taken(queue, 4)  # two are held
        queue.ack(done)
        queue.bury(bad, "broken")
        assert second.queue(name).claim(wait=WAIT) is not None
        found = numbers(capsys)
        alone = numbers(capsys, "--site", eu)
        assert alone.keys() == {key for key in found if eu in key} and alone["site_members", eu] == 1
        assert not first._closed  # a look closes no site that is open in its process
        ages = [found.pop(("queue_oldest_item_age_seconds", name, site)) for site in (eu, us)]
        assert {key: value for key, value in found.items() if name in key or eu in key or us in key} == {
            ("queue_items", name, eu): 5,
            ("queue_items", name, us): 7,
            ("queue_claimed_items", name, eu): 2,
            ("queue_claimed_items", name, us): 1,
            ("queue_lost_items", name, eu): 0,
            ("queue_lost_items", name, us): 0,
            ("queue_dead_letters", name, eu): 1,
            ("queue_dead_letters", name, us): 0,
            ("queue_state_readable", name, eu): 1,
            ("queue_state_readable", name, us): 1,
            ("site_members", eu): 1,
            ("site_members", us): 1,
        }
        assert all(0 < age < WAIT for age in ages)


def test_the_oldest_item_may_lie_in_any_partition(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    name, now = topic(kq_cluster, 2), int(time.time() * 1000)
    for partition, age in ((0, 0), (1, 600_000)):
        put(kq_cluster, name, {"value": b"x", "partition": partition, "timestamp": now - age})
    with kq.Site(kq_cluster, name) as site:
        assert site.queue(name).claim(wait=WAIT)
    assert numbers(capsys, "--site", name)["queue_oldest_item_age_seconds", name, name] >= 600
    assert main(["queue", "show", name, "--site", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["oldest"] >= 600


def test_a_state_that_cannot_be_read_is_a_number_too(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    name = topic(kq_cluster)
    with kq.Site(kq_cluster, name) as site:
        queue = site.queue(name)
        queue.put(b"a")
        queue.ack(queue.claim(wait=WAIT))
    commit(kq_cluster, name, name, 0, "1 7 someone wrote-here")
    found = numbers(capsys, "--site", name)
    assert found["queue_state_readable", name, name] == 0
    assert ("queue_items", name, name) not in found


def test_a_queue_whose_topic_was_deleted_is_named_and_the_others_are_counted(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    gone, dropped, kept = topic(kq_cluster), topic(kq_cluster), topic(kq_cluster)
    with kq.Site(kq_cluster, kept) as site:
        for name in (gone, dropped, kept):
            queue = kq.DrupalQueue(site, name)
            queue.create_queue()
            queue.create_item(name)
            claimed(queue)
        queue = kq.DrupalQueue(site, dropped)
        queue.delete_queue()
    for future in kq_cluster.admin.delete_topics([gone, dropped]).values():
        future.result(WAIT)
    until(lambda: not {gone, dropped} & kq_cluster.describe().topics.keys())
    capsys.readouterr()
    assert main(["metrics", "--site", kept]) == 0
    out, err = capsys.readouterr()
    assert f'kqlib_queue_state_readable{{queue="{gone}",site="{kept}"}} 0' in out
    assert f'kqlib_queue_items{{queue="{kept}",site="{kept}"}} 1' in out
    assert f"kq: '{gone}': site '{kept}' has used it, and there is no such topic" in err
    assert dropped not in out + err  # nobody misses what was deleted with `kq queue delete`


def test_labels_are_escaped() -> None:
    (*_, line) = exposed([("site_members", {"site": 'a"b\\c'}, 2)]).splitlines()
    assert line == r'kqlib_site_members{site="a\"b\\c"} 2'
