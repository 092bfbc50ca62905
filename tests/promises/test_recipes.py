"""The programs of examples/recipes run on a broker, as they are. Those whose library is not in our lock run at night."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kqlib as kq
from kqlib.kafka import Kafka
from tests.patience import WAIT

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"


@pytest.fixture
def queue_of(kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Makes a recipe's topic, whose name is fixed, and lets the recipe find the cluster."""
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    made = list[str]()

    def make(name: str) -> str:
        kq.Plan({name: kq.QueueTopic(partitions=1)}).apply(kq_cluster, quiet=True)
        made.extend((name, f"{name}.dead"))
        return name

    yield make
    kq_cluster.admin.delete_topics(made)


def test_a_recipe_is_short_and_says_how_to_run_it() -> None:
    for file in RECIPES.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 60 and "KQ_BOOTSTRAP=" in text, file


def test_a_request_puts_a_job_and_a_worker_beside_does_it(queue_of: Any, within: Any, caplog: Any) -> None:
    from fastapi.testclient import TestClient

    from examples.recipes.fastapi_service import app

    queue_of("mails")
    with caplog.at_level(logging.INFO, "mails"), TestClient(app) as client:
        answer = client.post("/mails", json={"to": "anna@example.org", "text": "goal!"})
        assert answer.status_code == 202 and answer.json()["id"]
        within(WAIT, lambda: "5 characters to anna@example.org" in caplog.text)
        assert client.post("/mails", json={"to": "anna@example.org"}).status_code == 422


def test_coroutines_work_on_items_at_once_and_finish_what_they_began(queue_of: Any, kq_cluster: Kafka) -> None:
    name = queue_of("pages")
    with kq.Site(kq_cluster, "putting") as site:
        site.queue(name).put_many([(b"%d" % number, None) for number in range(20)])
    command = [sys.executable, "-u", str(RECIPES / "asyncio_worker.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        lines = [worker.stdout.readline() for _ in range(20)]
        worker.send_signal(signal.SIGTERM)
        last = worker.stdout.read()
    assert sorted(lines, key=lambda line: int(line.split()[1])) == [f"fetched {number}\n" for number in range(20)]
    assert worker.returncode == 0 and last == "20 done, 0 to be tried again, 0 buried, 0 lost\n"


def test_each_line_of_the_log_is_json_with_the_fields_of_kqlib_and_of_the_handler(queue_of: Any, capsys: Any) -> None:
    from examples.recipes import json_logs

    queue_of("goals")
    loggers = [logging.getLogger(name) for name in ("kqlib", "goals")]
    before = [(each, list(each.handlers), each.level) for each in loggers]
    try:
        json_logs.main()
    finally:
        for each, handlers, level in before:
            each.handlers[:] = handlers
            each.setLevel(level)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(line.keys() >= {"time", "level", "logger", "text"} for line in lines)
    fields = [{name: line.get(name) for name in ("queue", "item", "attempt", "reason")} for line in lines]
    item = {"queue": "goals", "item": "goals/0/0"}
    shown = [each for each in fields if each["item"]]
    assert shown == [
        {**item, "attempt": 1, "reason": None},
        {**item, "attempt": 1, "reason": "ConnectionError: the scoreboard is off"},
        {**item, "attempt": 2, "reason": None},
    ]
    assert ["goals/0"] in [line.get("partitions") for line in lines if line.get("site") == "scores"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("recipe", "name", "printed"),
    [
        ("django_outbox", "invoices", r"rolled back: ben has not paid\nin the queue: \[b'anna'\]\n"),
        ("opentelemetry_trace", "goals", r"put in trace (0x\w+)\nhandled in trace \1\n"),
    ],
)
def test_a_recipe_for_another_library(recipe: str, name: str, printed: str, queue_of: Any, tmp_path: Path) -> None:
    queue_of(name)
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    pins = ["--python", sys.executable, "-r", str(RECIPES / "requirements" / f"{recipe}.txt")]
    subprocess.run([*install, *pins], env=os.environ | {"PATH": tools}, check=True)
    own = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    ran = subprocess.run(
        [sys.executable, RECIPES / f"{recipe}.py"], env=own, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0 and re.fullmatch(printed, ran.stdout), ran.stdout + ran.stderr
