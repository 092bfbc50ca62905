"""Clients of virtual queues in other languages: they find every partition, and all cases hold through them, beside two nodes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


class Owner(BaseHTTPRequestHandler):
    """A node that has all queues. After its first answer, 503, the node that the client began with is gone."""

    seed: ThreadingHTTPServer | None
    url: str

    def do_GET(self) -> None:
        status, body = 200, {"version": 1, "partitions": 1, "owners": {"0": {"url": self.url}}}
        if self.path != "/map" and Owner.seed:
            Owner.seed.shutdown()
            Owner.seed.server_close()
            Owner.seed, status, body = None, 503, {"title": "Unavailable"}
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_DELETE = do_GET  # noqa: N815 - http.server's name

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("language", ["node", pytest.param("go", marks=pytest.mark.nightly)])
def test_a_client_goes_on_when_the_node_that_it_began_with_is_gone(language: str, tmp_path: Path) -> None:
    case = {"name": "a read", "steps": [{"ask": "GET", "path": "/records", "status": 200, "answer": {"version": 1}}]}
    (tmp_path / "cases.json").write_text(json.dumps({"cases": [case]}))
    with ThreadingHTTPServer(("127.0.0.1", 0), Owner) as owner, ThreadingHTTPServer(("127.0.0.1", 0), Owner) as seed:
        Owner.seed, Owner.url = seed, f"http://127.0.0.1:{owner.server_port}"
        for each in (owner, seed):
            threading.Thread(target=each.serve_forever, args=(0.05,), daemon=True).start()
        status, out = ask(language, "check", f"http://127.0.0.1:{seed.server_port}", str(tmp_path / "cases.json"))
        for each in (owner, seed):
            each.shutdown()
    assert (status, out, Owner.seed) == (0, "✓ a read\n", None)


@pytest.mark.nightly
@pytest.mark.parametrize("language", CLIENTS)
def test_all_cases_hold_through_a_client(kq_cluster: Kafka, language: str) -> None:
    name = f"cases-{uuid.uuid4().hex[:8]}"
    Plan(topics(name, 4)).apply(kq_cluster, quiet=True)
    with Node(kq_cluster, name, token=TOKEN) as one, Node(kq_cluster, name, token=TOKEN) as other:
        until(lambda: one.ready()[0] and other.ready()[0] and len(one.owned) == len(other.owned) == 2, one.ready)
        status, out = ask(language, "check", one.url, str(DATA / "virtual-cases.json"))
        assert status == 0 and "✗" not in out and "✓" in out, out
