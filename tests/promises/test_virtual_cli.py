"""`kq virtual`: a node from the command line, the plan of its topics, and the check of what a node answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import httpx
import pytest

from kqlib.kafka import Kafka
from kqlib.topics import Plan
from kqlib.virtual import Client, Node, routes
from kqlib.virtual.names import topics
from kqlib.virtual.routes import _item
from tests.patience import WAIT, until

REPO = Path(__file__).parents[2]
RUN = "import sys; from kqlib.command.main import main; sys.exit(main())"


PAGE = "https://team.example"
ASKED = {
    ("Origin", PAGE): 200,
    ("Origin", "https://elsewhere.example"): 403,
    ("Host", "queues.test"): 200,
    ("Host", "elsewhere.example"): 403,
}


def kq(cluster: Kafka, *words: str, **more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "KQ_BOOTSTRAP": cluster.bootstrap, **more}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", RUN, "virtual", *words], env=environment, text=True, **pipes)


def test_a_node_is_served_until_it_is_stopped(kq_cluster: Kafka) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    Plan(topics(name, 2)).apply(kq_cluster, quiet=True)
    allowed = ("--allow-origin", PAGE, "--allow-host", "queues.test")
    node = kq(kq_cluster, "serve", name, *allowed, KQ_VIRTUAL_TOKEN="a-secret-token")
    try:
        assert node.stdout and node.stderr
        url = node.stdout.readline().strip()
        assert httpx.get(f"{url}/health", timeout=WAIT, trust_env=False).json() == {"status": "ok"}
        assert httpx.get(f"{url}/map", timeout=WAIT, trust_env=False).status_code == 401
        token = {"Authorization": "Bearer a-secret-token"}
        response = httpx.get(f"{url}/map", headers=token, timeout=WAIT, trust_env=False)
        assert response.json()["partitions"] == 2
        asked = {
            headers: httpx.get(f"{url}/health", headers=[headers], timeout=WAIT, trust_env=False) for headers in ASKED
        }
        assert {headers: answer.status_code for headers, answer in asked.items()} == ASKED
        node.send_signal(signal.SIGTERM)
        assert node.wait(WAIT) == 0
        assert node.stderr.read() == "Serving until Ctrl-C. The routes: /docs\nGiving the partitions up.\n"
    finally:
        node.kill()
        node.communicate()


def test_the_topics_are_planned_in_a_file(kq_cluster: Kafka, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    response, _ = kq(kq_cluster, "plan", "games", str(file), "--partitions", "3").communicate(timeout=WAIT)
    assert response == f"Written: {file}. Now: kq topics apply {file}\n"
    assert Plan.read(file).all == Plan(topics("games", 3)).all


def test_an_error_is_one_line(kq_cluster: Kafka) -> None:
    process = kq(kq_cluster, "serve", "not-there")
    _, error = process.communicate(timeout=WAIT)
    assert process.returncode == 2 and error.count("\n") == 1
    assert error.startswith("kq: 'not-there' does not exist on this cluster.")


FEW = """
import resource
from kqlib.command.virtual import _many_files

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
_many_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] == (16_384 if most < 0 else min(16_384, most)))
"""


def test_a_node_asks_for_as_many_open_files_as_it_may_have() -> None:
    assert subprocess.run([sys.executable, "-c", FEW], check=True, capture_output=True, text=True).stdout == "True\n"


def check(cluster: Kafka, url: str, **more: str) -> tuple[int, str, str]:
    asked = kq(cluster, "check", url, **more)
    out, err = asked.communicate(timeout=WAIT)
    return asked.returncode, out, err


def test_a_node_does_all_that_the_cases_say_and_one_that_does_not_is_found(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = len(json.loads((REPO / "data" / "virtual-cases.json").read_text("utf-8"))["cases"])
    name = f"cases-{uuid.uuid4().hex[:8]}"
    Plan(topics(name, 4)).apply(kq_cluster, quiet=True)
    token = "a-secret-token"
    with Node(kq_cluster, name, token=token) as one, Node(kq_cluster, name, token=token) as other:
        until(lambda: one.ready()[0] and other.ready()[0] and len(one.owned) == len(other.owned) == 2, one.ready)
        status, out, err = check(kq_cluster, one.url, KQ_VIRTUAL_TOKEN=token)
        assert (status, out.splitlines()[-1], err) == (0, f"{many} of {many} cases are as they should be.", ""), out
        with Client(one.url, token=token) as client:
            assert client.queues("check-") == []
        status, out, err = check(kq_cluster, one.url, KQ_VIRTUAL_TOKEN="another-token")
        assert (status, out) == (2, "") and "asks for its token" in err
        monkeypatch.setattr(routes, "_item", lambda item: _item(item) | {"attempt": 1})
        status, out, _ = check(kq_cluster, one.url, KQ_VIRTUAL_TOKEN=token)
        wrong = [line for line in out.splitlines() if line.startswith("✗")]
        assert status == 1 and len(wrong) == 2, out
        assert "answer.items[0].attempt is 1, not 2" in out
    status, out, err = check(kq_cluster, "http://127.0.0.1:9")
    assert (status, out) == (2, "") and "No node of the virtual queues answered at http://127.0.0.1:9" in err
