"""`kq virtual`: a node from the command line, the plan of its topics, and the check of what a node answers."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from kqlib.command.main import main
from kqlib.command.virtual import _many_files
from kqlib.kafka import Kafka
from kqlib.topics import Plan
from kqlib.virtual import Client, Node, routes
from kqlib.virtual.names import topics
from kqlib.virtual.routes import _item
from tests.patience import WAIT, until

REPO = Path(__file__).parents[2]
RUN = "import sys; from kqlib.command.main import main; sys.exit(main())"
TOKEN = "a-secret-token"
PAGE = "https://team.example"
ASKED = {
    ("Origin", PAGE): 200,
    ("Origin", "https://elsewhere.example"): 403,
    ("Host", "queues.test"): 200,
    ("Host", "elsewhere.example"): 403,
}


def test_a_node_is_served_until_it_is_stopped(kq_cluster: Kafka) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    Plan(topics(name, 2)).apply(kq_cluster, quiet=True)
    words = ["virtual", "serve", name, "--allow-origin", PAGE, "--allow-host", "queues.test"]
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    how["env"] = os.environ | {"KQ_BOOTSTRAP": kq_cluster.bootstrap, "KQ_VIRTUAL_TOKEN": TOKEN}
    node = subprocess.Popen([sys.executable, "-c", RUN, *words], **how)
    try:
        assert node.stdout and node.stderr
        url = node.stdout.readline().strip()
        assert httpx.get(f"{url}/health", timeout=WAIT, trust_env=False).json() == {"status": "ok"}
        assert httpx.get(f"{url}/map", timeout=WAIT, trust_env=False).status_code == 401
        token = {"Authorization": f"Bearer {TOKEN}"}
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


def test_the_topics_are_planned_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.toml"
    assert main(["virtual", "plan", "games", str(file), "--partitions", "3"]) == 0
    assert capsys.readouterr().out == f"Written: {file}. Now: kq topics apply {file}\n"
    assert Plan.read(file).all == Plan(topics("games", 3)).all


@pytest.mark.parametrize(("most", "files"), [(resource.RLIM_INFINITY, 16_384), (1_000, 1_000), (1_000_000, 16_384)])
def test_a_node_asks_for_enough_open_files_if_it_may(most: int, files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[int, int]]()
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, most))
    monkeypatch.setattr("resource.setrlimit", lambda _, limits: asked.append(limits))
    _many_files()
    assert asked == [(files, most)]


def test_check_passes_a_node_that_keeps_all_cases_and_finds_one_that_does_not(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(url: str, token: str = TOKEN) -> tuple[int, str, str]:
        monkeypatch.setenv("KQ_VIRTUAL_TOKEN", token)
        return main(["virtual", "check", url]), *capsys.readouterr()

    many = len(json.loads((REPO / "data" / "virtual-cases.json").read_text("utf-8"))["cases"])
    name = f"cases-{uuid.uuid4().hex[:8]}"
    Plan(topics(name, 4)).apply(kq_cluster, quiet=True)
    with Node(kq_cluster, name, token=TOKEN) as one, Node(kq_cluster, name, token=TOKEN) as other:
        until(lambda: one.ready()[0] and other.ready()[0] and len(one.owned) == len(other.owned) == 2, one.ready)
        status, out, err = check(one.url)
        assert (status, out.splitlines()[-1], err) == (0, f"{many} of {many} cases are as they should be.", ""), out
        with Client(one.url, token=TOKEN) as client:
            assert client.queues("check-") == []
        status, out, err = check(one.url, "another-token")
        assert (status, out) == (2, "") and "asks for its token" in err
        monkeypatch.setattr(routes, "_item", lambda item: _item(item) | {"attempt": 1})
        status, out, _ = check(one.url)
        wrong = [line for line in out.splitlines() if line.startswith("✗")]
        assert status == 1 and len(wrong) == 2, out
        assert "answer.items[0].attempt is 1, not 2" in out
    status, out, err = check("http://127.0.0.1:9")
    assert (status, out) == (2, "") and "No node of the virtual queues answered at http://127.0.0.1:9" in err
