"""`kq virtual check` at an address where something else answers, and at a node that sends what is no JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.virtual.conformance import Conformance
from kqlib.virtual.errors import NoNode


@pytest.fixture
def site() -> Iterator[dict[str, Any]]:
    """A web server: path -> the text that it sends. Other paths get a page."""
    pages: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path, "<p>Hello</p>").encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_DELETE = do_GET  # noqa: N815 - http.server's name

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pages["url"] = f"http://127.0.0.1:{server.server_port}"
        yield pages
        server.shutdown()


CASES = [{"name": "one", "steps": [{"ask": "GET", "path": "/records", "status": 200, "answer": {"records": []}}]}]


@pytest.mark.parametrize("text", ["<p>Hello</p>", "[]", "{}", '{"partitions": 0, "owners": {}}'])
def test_what_is_no_node_is_named(site: dict[str, Any], text: str) -> None:
    site["/map"] = text
    with pytest.raises(NoNode, match="No node of the virtual queues answered at http://127"):
        list(Conformance(site["url"]).run(CASES))


def test_an_answer_that_is_no_json_is_a_difference(site: dict[str, Any]) -> None:
    site["/map"] = json.dumps({"version": 1, "partitions": 1, "owners": {"0": {"url": site["url"]}}})
    [(name, why)] = Conformance(site["url"]).run(CASES)
    assert (name, why) == ("one", "step 1, GET /records: the answer is not JSON: <p>Hello</p>")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"url": "localhost:4711"}, "a node's address is like"),
        ({"ca": "none.pem"}, "a ca is a file with certificates, not 'none.pem'"),
        ({"token": "x y"}, "a token is at least 8 ASCII characters"),
    ],
)
def test_a_bad_argument_is_refused(how: dict[str, str], words: str) -> None:
    with pytest.raises(NotAllowed, match=words):
        Conformance(**{"url": "http://127.0.0.1:9", **how})
