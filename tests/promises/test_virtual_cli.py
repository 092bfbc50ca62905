"""`kq virtual`: a node from the command line, and the plan of its topics."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import httpx

from kqlib.kafka import Kafka
from kqlib.topics import Plan
from kqlib.virtual.names import topics
from tests.patience import WAIT

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
