"""Does a node answer as the contract says? The cases are data, for any language: `data/virtual-cases.json`, with its rules.

In:  the address of a node, the cases. Out: for each case what was otherwise than it says, or nothing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import httpx

from kqlib.errors import KqError
from kqlib.virtual.client import address, error_of, trusted
from kqlib.virtual.errors import NoNode
from kqlib.virtual.names import checked_token, partition_of

ANSWER, PATIENCE, PAUSE = 60.0, 60.0, 0.1  # seconds: of one request, until an owner answers, between two tries


class Differs(Exception):  # noqa: N818 - not an error of ours: it is the result of a case
    """An answer that is otherwise than its case says."""


class Conformance:
    """Asks the nodes of one set of virtual queues."""

    def __init__(self, url: str, token: str | None = None, ca: str | None = None) -> None:
        self._url, self._token = address(url), checked_token(token)
        self._http = httpx.Client(timeout=ANSWER, verify=trusted(ca), trust_env=False)
        self._map: dict[str, Any] = {}

    def run(self, cases: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
        """Each case: its name, and what is otherwise; empty if nothing is. Its queues are deleted after it."""
        with self._http:
            self._look()
            for case in cases:
                values: dict[str, Any] = {"{q}": f"check-{uuid.uuid4().hex[:12]}"}
                try:
                    self._case(case["steps"], values)
                    why = ""
                except Differs as error:
                    why = str(error)
                except httpx.HTTPError as error:
                    why = f"{type(error).__name__}: {error}"
                yield case["name"], why
                with suppress(Differs, httpx.HTTPError, KqError):
                    self._case([{"ask": "DELETE", "path": "", "queue": q} for q in ("{q}", "{q}.dead")], values)

    def _case(self, steps: Sequence[Mapping[str, Any]], values: dict[str, Any]) -> None:
        for at, step in enumerate(steps, 1):
            queue = str(filled(step.get("queue", "{q}"), values))
            values["$partition"] = partition_of(queue, self._map["partitions"])
            answer = self._ask(step, queue, values)
            if answer is None:
                continue
            where = f"step {at}, {step['ask']} {step['path'] or '/'}"
            if answer.status_code != step.get("status", answer.status_code):
                raise Differs(f"{where}: the status is {answer.status_code}, not {step['status']}: {answer.text[:300]}")
            expected = filled(step.get("answer", "*"), values)
            try:
                content = answer.json() if answer.content else None
            except ValueError:
                raise Differs(f"{where}: the answer is not JSON: {answer.text[:300]}") from None
            if why := differs(expected, content, values):
                raise Differs(f"{where}: {why}")

    def _ask(self, step: Mapping[str, Any], queue: str, values: Mapping[str, Any]) -> httpx.Response | None:
        """The answer of the node that has to answer; None: this step cannot be tried here."""
        bare = step.get("token") is False
        if bare and not self._token and step["status"] == 401:
            return None
        headers = dict(step.get("headers", {}))
        if self._token and not bare:
            headers["Authorization"] = f"Bearer {self._token}"
        path, deadline = str(filled(step["path"], values)), time.monotonic() + PATIENCE
        while True:
            owners = {number: owner and owner["url"] for number, owner in self._map["owners"].items()}
            mine = owners.get(str(values["$partition"]))
            match step.get("at"):
                case "any":
                    url = self._url
                case "another":
                    others = sorted({url for url in owners.values() if url} - {mine})
                    if not others:
                        return None
                    url = f"{others[0]}/queues/{queue}"
                case _:
                    url = f"{mine}/queues/{queue}" if mine else ""
            if url:
                answer = self._http.request(
                    step["ask"], url + path, json=filled(step.get("body"), values), headers=headers
                )
                again = answer.status_code in (409, 503) and answer.status_code != step.get("status")
                if not again or time.monotonic() > deadline:
                    return answer
            elif time.monotonic() > deadline:
                raise Differs(f"nobody has partition {values['$partition']}")
            time.sleep(PAUSE)
            self._look()

    def _look(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            answer = self._http.get(f"{self._url}/map", headers=headers)
            content = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise NoNode(address=self._url, why=f"{type(error).__name__}: {error}") from None
        if not answer.is_success:
            raise error_of(content, answer.status_code)
        if not isinstance(content, dict) or not content.get("partitions") or "owners" not in content:
            raise NoNode(address=self._url, why="what it sent as its map names no partitions")
        self._map = content


def filled(value: Any, values: Mapping[str, Any]) -> Any:
    """A request, or an expected answer, with the values that are known. A text that is a name alone becomes its value, of any type."""
    if isinstance(value, dict):
        return {filled(name, values): filled(each, values) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each, values) for each in value]
    if not isinstance(value, str) or value in values:
        return values.get(value, value) if isinstance(value, str) else value
    for name, known in values.items():
        value = value.replace(name, str(known))
    return value


def differs(expected: Any, found: Any, values: dict[str, Any], at: str = "answer") -> str:
    """What is otherwise than expected; a '$name' takes the value that it meets."""
    if isinstance(expected, str) and expected.startswith("$"):
        values[expected] = found
        return ""
    if expected == "*":
        return ""
    pairs: list[tuple[Any, Any, str]] = []
    match expected:
        case dict() if isinstance(found, dict):
            if missing := expected.keys() - found:
                return f"{at} has no {', '.join(sorted(missing))}"
            pairs = [(expected[name], found[name], f"{at}.{name}") for name in expected]
        case list() if isinstance(found, list) and len(found) == len(expected):
            pairs = [(*two, f"{at}[{n}]") for n, two in enumerate(zip(expected, found, strict=True))]
        case _ if expected != found or type(expected) is not type(found):
            return f"{at} is {found!r}, not {expected!r}"
    return next((why for one, other, where in pairs if (why := differs(one, other, values, where))), "")
