"""The same verbs in memory and at an address: what is kept, what is refused, and what a person reads.

The registry at an address is a stand-in: HTTP around the one in memory. It shows that our requests have the form of Confluent's API,
and that its answers become our words. What no stand-in can show is a real registry's own judgement.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from kqlib.errors import IncompatibleSchema, NotAllowed, UnknownSchema, Unreachable
from kqlib.schemas import Registry, Version, canonical
from kqlib.schemas.store import SchemaStore
from kqlib.workshop import games
from tests.unit.schema_examples import field, one, record

V1, V2 = games.schema(1), games.schema(2)


class StandIn(BaseHTTPRequestHandler):
    """As much of a registry's HTTP as our verbs use."""

    store: SchemaStore

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(self._body())

    def do_PUT(self) -> None:
        self._answer(self._body())

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: Any) -> None:
        code, answer = 200, None
        try:
            answer = self._do([unquote(part) for part in self.path.split("?")[0].strip("/").split("/")], body)
        except SchemaRegistryError as error:
            code, answer = error.http_status_code, {"error_code": error.error_code, "message": error.error_message}
        except IncompatibleSchema as error:
            code, answer = 409, {"error_code": 409, "message": str(error)}
        except NotAllowed as error:
            code, answer = 422, {"error_code": 42201, "message": str(error)}
        data = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _do(self, path: list[str], body: Any) -> Any:  # noqa: PLR0911 - one line a request
        match self.command, *path:
            case "POST", "subjects", subject, "versions":
                return {"id": self.store.register_schema(subject, Schema(body["schema"], "AVRO"))}
            case "GET", "subjects":
                return self.store.get_subjects()
            case "GET", "subjects", subject, "versions":
                return self.store.get_versions(subject)
            case "GET", "subjects", subject, "versions", number:
                found = self.store.get_version(subject, int(number))
                return {
                    "subject": subject,
                    "id": found.schema_id,
                    "version": found.version,
                    "schema": found.schema.schema_str,
                }
            case "GET", "schemas", "ids", number:
                return {"schema": json.dumps(json.loads(self.store.get_schema(int(number)).schema_str), indent=1)}
            case "GET", "config", *subject:
                return {"compatibilityLevel": self.store.get_compatibility(*subject)}
            case "PUT", "config", *subject:
                return self.store.set_compatibility(subject[0] if subject else None, body["compatibility"])
        raise SchemaRegistryError(404, 404, "HTTP 404 Not Found")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(params=["in memory", "at an address"])
def registry(request: pytest.FixtureRequest) -> Iterator[Registry]:
    """An empty registry of each kind."""
    if request.param == "in memory":
        yield Registry()
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Mine", (StandIn,), {"store": SchemaStore()}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    registry = Registry(url={"url": f"http://127.0.0.1:{server.server_port}", "ssl.ca.location": False})
    try:
        yield registry
    finally:
        registry.client.close()
        server.shutdown()
        server.server_close()
        thread.join()


def test_what_is_registered_is_kept_under_an_id(registry: Registry) -> None:
    assert [registry.register("a-value", V1), registry.register("a-value", V2)] == [1, 2]
    assert registry.register("a-value", V1) == 1
    assert canonical(registry.schema(2)) == canonical(V2)  # a registry may write it in its own way
    assert (registry.versions("a-value"), registry.ids("a-value")) == ([1, 2], [1, 2])
    assert registry.latest("a-value") == registry.version("a-value", 2) == Version(2, 2, canonical(V2))


def test_the_same_schema_under_two_subjects_has_one_id(registry: Registry) -> None:
    assert [registry.register(subject, V1) for subject in ("a-value", "b-value")] == [1, 1]
    assert registry.register("b-value", V2) == 2  # no number was used up
    assert registry.register("a-value", V2) == 2
    assert [(registry.versions(subject), registry.ids(subject)) for subject in ("a-value", "b-value")] == [
        ([1, 2], [1, 2])
    ] * 2
    assert registry.latest("a-value") == registry.latest("b-value") == Version(2, 2, canonical(V2))
    assert registry.register("c-value", V2) == 2 and registry.version("c-value", 1) == Version(1, 2, canonical(V2))


def test_subjects_are_listed_in_order_whatever_they_are_called(registry: Registry) -> None:
    for subject in ("b-value", "a b/c?d-value", "ä-key"):
        registry.register(subject, V1)
    assert registry.subjects() == ["a b/c?d-value", "b-value", "ä-key"]
    assert registry.versions("a b/c?d-value") == [1]


@pytest.mark.parametrize("form", [V1, json.loads(V1), Schema(V1, "AVRO"), json.dumps(json.loads(V1), indent=8)])
def test_one_schema_written_in_many_ways_is_registered_once(registry: Registry, form: Any) -> None:
    assert registry.register("a", V1) == registry.register("a", form)
    assert registry.versions("a") == [1]


def test_backward_is_the_level_until_someone_says_another(registry: Registry) -> None:
    assert (registry.level(), registry.level("a")) == ("BACKWARD", "BACKWARD")
    registry.set_level("a", "full")
    registry.set_level(None, "NONE")
    assert (registry.level(), registry.level("a"), registry.level("b")) == ("NONE", "FULL", "NONE")


def test_a_refusal_names_the_version_the_field_and_the_rule(registry: Registry) -> None:
    registry.register("a-value", V1)
    registry.register("a-value", V2)
    with pytest.raises(IncompatibleSchema) as caught:
        registry.register(
            "a-value", {**json.loads(V2), "fields": [*json.loads(V2)["fields"], field("stadium", "string")]}
        )
    assert str(caught.value) == (
        "'a-value' keeps BACKWARD: the new schema cannot read version 2 at 'stadium': "
        "the writer has no such field, and it has no default (rule: no default). Nothing was registered"
    )
    facts = {"subject": "a-value", "level": "BACKWARD", "version": 2, "path": "stadium", "rule": "no default"}
    assert {name: getattr(caught.value, name) for name in facts} == facts
    assert registry.versions("a-value") == [1, 2]


def test_checking_registers_nothing_and_says_what_registering_would(registry: Registry) -> None:
    registry.register("a", one("long"))
    assert registry.check("a", one("int")).reasons == (
        "the new schema cannot read version 1 at 'a': long cannot become int (rule: other type)",
    )
    assert registry.check("a", one("double"))
    assert registry.check("new", one("int")).against == ()
    assert (registry.subjects(), registry.versions("a")) == (["a"], [1])


def test_a_level_counts_from_now_on(registry: Registry) -> None:
    registry.set_level("a", "NONE")
    assert [registry.register("a", one("long")), registry.register("a", one("string"))] == [1, 2]
    registry.set_level("a", "BACKWARD_TRANSITIVE")
    with pytest.raises(IncompatibleSchema, match="'a' keeps BACKWARD_TRANSITIVE: the new schema cannot read version 2"):
        registry.register("a", one("double"))
    assert registry.register("a", one("string")) == 2  # what is there stays


def test_a_codec_works_with_either(registry: Registry) -> None:
    old, new = registry.codec("a-value", V1), registry.codec("a-value", V2)
    value = games.values(games.events(1), 1)[0]
    assert new.decode(old.encode(value)) == {**value, "customer": ""}
    assert registry.codec("a-value").id == new.id
    assert new.decode(new.encode({**value, "customer": "x"})) == {**value, "customer": "x"}
    assert new._writers[new.id][2] is None  # its own schema, so nothing is to be resolved


def test_confluents_serializer_works_with_either(registry: Registry) -> None:
    value = games.values(games.events(1), 1)[0]
    data = AvroSerializer(registry.client, V1)(value, SerializationContext("a", MessageField.VALUE))
    assert registry.codec("a-value").decode(data) == value


def test_confluents_serializer_cannot_register_what_the_level_refuses(registry: Registry) -> None:
    registry.register("a-value", one("long"))
    with pytest.raises((IncompatibleSchema, SchemaRegistryError)):
        AvroSerializer(registry.client, json.dumps(one("int")))({"a": 1}, SerializationContext("a", MessageField.VALUE))
    assert registry.versions("a-value") == [1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: r.schema(99), "schema 99 is not in this registry"),
        (lambda r: r.schema(-1), "schema -1 is not in this registry"),
        (lambda r: r.versions("nobody"), "subject 'nobody' is not in this registry"),
        (lambda r: r.ids("nobody"), "subject 'nobody' is not in this registry"),
        (lambda r: r.latest("nobody"), "subject 'nobody' is not in this registry"),
        (lambda r: r.version("nobody", 1), "version 1 of 'nobody' is not in this registry"),
    ],
)
def test_what_is_not_there_is_unknown(registry: Registry, call: Any, words: str) -> None:
    with pytest.raises(UnknownSchema) as caught:
        call(registry)
    assert str(caught.value).startswith(words)


SUBJECT = "a subject is a name, by habit the topic's with -value or -key: 'football-value', not"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: r.register("", V1), f"{SUBJECT} ''"),
        (lambda r: r.register("a\nb", V1), f"{SUBJECT} 'a\\nb'"),
        (lambda r: r.check(5, V1), f"{SUBJECT} 5"),
        (lambda r: r.level(""), f"{SUBJECT} ''"),
        (lambda r: r.versions(b"a"), f"{SUBJECT} b'a'"),
        (lambda r: r.codec("", V1), f"{SUBJECT} ''"),
        (lambda r: r.register("a", "{"), "this is no Avro schema: it is no JSON"),
        (lambda r: r.check("a", None), "a schema is Avro's JSON, as text or as a dict, not NoneType"),
        (lambda r: r.set_level("a", "UPWARD"), "'UPWARD' is no level; there are NONE, BACKWARD,"),
        (lambda r: r.set_level("a", None), "None is no level; there are NONE, BACKWARD,"),
        (lambda r: r.schema("1"), "a schema's id is a whole number, not '1'"),
        (lambda r: r.schema(True), "a schema's id is a whole number, not True"),
    ],
)
def test_a_wrong_argument_is_named(call: Any, words: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        call(Registry())
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Registry("UPWARD"), "'UPWARD' is no level"),
        (lambda: Registry(cluster="localhost"), "cluster is a cluster, as in Registry(cluster=lab.cluster), not str"),
        (lambda: Registry(cluster=object(), url="http://x"), "a registry is in a cluster or at an address"),
        (lambda: Registry("FULL", url="http://x"), "a registry at an address has its own level"),
        (lambda: Registry(url=""), "this is no address of a schema registry: "),
        (lambda: Registry(url="registry"), "this is no address of a schema registry: "),
        (lambda: Registry(url={}), "this is no address of a schema registry: "),
        (lambda: Registry(url={"url": "http://x", "speed": 9}), "this is no address of a schema registry: "),
    ],
)
def test_a_registry_that_cannot_be_is_refused_at_once(call: Any, words: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        call()
    assert str(caught.value).startswith(words)


def test_where_nobody_answers_the_address_is_named() -> None:
    registry = Registry(url={"url": "http://127.0.0.1:9", "max.retries": 0})
    with pytest.raises(Unreachable) as caught:
        registry.subjects()
    assert str(caught.value).startswith("No schema registry answered at http://127.0.0.1:9: ")
    registry.client.close()


def test_a_registry_shows_where_it_is_and_what_it_holds(registry: Registry) -> None:
    where = "in memory" if "memory" in registry._where else "at an address"
    assert repr(registry) == f"Registry({where}, BACKWARD, 0 subjects)"
    registry.register("a", V1)
    assert repr(registry) == f"Registry({where}, BACKWARD, 1 subject)"


def test_two_threads_that_register_at_once_get_one_id() -> None:
    registry, ids, schemas = Registry(), [], [record(name=f"R{number}") for number in range(20)]
    threads = [
        threading.Thread(target=lambda: ids.append([registry.register(f"s{n}", s) for n, s in enumerate(schemas)]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, found in enumerate(zip(*ids, strict=True)):
        assert len(set(found)) == 1
        assert registry.ids(f"s{n}") == [found[0]]
