"""Clients of virtual queues in other languages: they find every partition, and all cases hold through them, beside two nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from kqlib.kafka import Kafka
from kqlib.topics import Plan
from kqlib.virtual import Node
from kqlib.virtual.names import topics
from tests.patience import WAIT, until

REPO = Path(__file__).parents[2]
HERE, DATA = REPO / "examples" / "virtual", REPO / "data"
CLIENTS = {
    "node": ["node", str(HERE / "client.mjs")],
    "go": ["go", "run", str(HERE / "client.go"), str(HERE / "cases.go")],
}
LINES = 200
TOKEN = "a-secret-token"


def ask(language: str, *words: str) -> tuple[int, str]:
    """What the program says, and its status."""
    if not shutil.which(language):
        pytest.skip(f"no {language} here")
    done = subprocess.run(
        [*CLIENTS[language], *words],
        env=os.environ | {"KQ_VIRTUAL_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        timeout=2 * WAIT,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_programs_are_short() -> None:
    assert all(len(path.read_text("utf-8").splitlines()) <= LINES for path in HERE.iterdir())


@pytest.mark.parametrize("language", ["node", pytest.param("go", marks=pytest.mark.nightly)])
def test_a_client_finds_every_partition(language: str) -> None:
    assert ask(language, "partitions", str(DATA / "murmur2.json")) == (0, "50 keys, 0 differ\n")


@pytest.mark.nightly
@pytest.mark.parametrize("language", CLIENTS)
def test_all_cases_hold_through_a_client(kq_cluster: Kafka, language: str) -> None:
    name = f"cases-{uuid.uuid4().hex[:8]}"
    Plan(topics(name, 4)).apply(kq_cluster, quiet=True)
    with Node(kq_cluster, name, token=TOKEN) as one, Node(kq_cluster, name, token=TOKEN) as other:
        until(lambda: one.ready()[0] and other.ready()[0] and len(one.owned) == len(other.owned) == 2, one.ready)
        status, out = ask(language, "check", one.url, str(DATA / "virtual-cases.json"))
        assert status == 0 and "✗" not in out and "✓" in out, out
