"""Schemas under subjects, each with an id, and the levels that new versions must keep to: `registry = kq.schemas.Registry()`.

In:  nothing (in memory), a cluster (shared by its processes, in the topic kq.schemas) or the address of a registry server.
Out: `Registry`, with the same verbs for all three. `registry.client` is the confluent_kafka client that AvroSerializer takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kqlib.errors import IncompatibleSchema, KqError, NoRegistry, NotAllowed, UnknownSchema
from kqlib.schemas import form, rules
from kqlib.schemas.wire import Codec
from kqlib.text import count

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

T = TypeVar("T")


@dataclass(frozen=True)
class Version:
    """One version of a subject: its number, the id of its schema, the schema."""

    number: int
    id: int
    schema: str


class Registry:
    """Registered schemas, and a check of new ones: `Registry()`, `Registry(cluster=cluster)`, `Registry(url="http://…")`.

    level: what new versions of a subject without its own level must keep to; BACKWARD by default. A registry server has its own level.
    url: an address, or a dict of settings for SchemaRegistryClient.
    """

    def __init__(
        self, level: str | None = None, *, cluster: Kafka | None = None, url: str | Mapping[str, Any] | None = None
    ) -> None:
        name = None if level is None else rules.level(level).name
        if cluster is not None and url is not None:
            raise NotAllowed("a registry is in a cluster or at an address: say cluster or url, not both")
        if url is not None and level is not None:
            raise NotAllowed(
                "a registry at an address has its own level; set_level(None, …) changes it for everybody there"
            )
        if cluster is not None and not hasattr(cluster, "bootstrap"):
            raise NotAllowed(f"cluster is a cluster, as in Registry(cluster=lab.cluster), not {type(cluster).__name__}")
        self.client = _client(name, cluster, url)
        self._where = (
            "in memory" if cluster is None and url is None else "in kq.schemas" if url is None else "at an address"
        )

    def register(self, subject: str, schema: Any) -> int:
        """Register a schema; out: its id, which is the same for the same schema. `IncompatibleSchema` if the level refuses it."""
        from confluent_kafka.schema_registry import Schema

        name, text = _subject(subject), form.canonical(schema)
        try:
            return self._ask(lambda: self.client.register_schema(name, Schema(text, "AVRO")), f"'{name}'")
        except IncompatibleSchema as error:
            verdict = self.check(name, text)  # the same sentences for every kind of registry
            raise (error if verdict else verdict.refusal(name)) from None

    def check(self, subject: str, schema: Any) -> rules.Verdict:
        """Would `register` accept this schema? True or False, with the reasons. Nothing is registered."""
        earlier = [(each.number, each.schema) for each in self._all(_subject(subject))]
        return rules.check(self.level(subject), schema, earlier)

    def level(self, subject: str | None = None) -> str:
        """The level of a subject: its own, else the common one. Without a subject: the common one."""
        if subject is not None:
            own = self._or_none(lambda: self.client.get_compatibility(_subject(subject)))
            if own is not None:
                return own
        return str(self._ask(lambda: self.client.get_compatibility(None), "the common level"))

    def set_level(self, subject: str | None, level: str) -> None:
        """Set the level for new versions of a subject; None: of all subjects without a level of their own."""
        name = rules.level(level).name
        where = None if subject is None else _subject(subject)
        self._ask(lambda: self.client.set_compatibility(where, name), "the level")

    def subjects(self) -> list[str]:
        """All subjects, sorted."""
        return sorted(self._ask(self.client.get_subjects, "the subjects"))

    def versions(self, subject: str) -> list[int]:
        """The numbers of a subject's versions, oldest first."""
        return sorted(self._ask(lambda: self.client.get_versions(_subject(subject)), f"subject '{subject}'"))

    def ids(self, subject: str) -> list[int]:
        """The ids of a subject's schemas, oldest version first."""
        return [self.version(subject, number).id for number in self.versions(subject)]

    def version(self, subject: str, number: int) -> Version:
        """One version of a subject."""
        what = f"version {number} of '{subject}'"
        found = self._ask(lambda: self.client.get_version(_subject(subject), number), what)
        return Version(found.version, found.schema_id, found.schema.schema_str)

    def latest(self, subject: str) -> Version:
        """A subject's newest version."""
        return self.version(subject, self.versions(subject)[-1])

    def schema(self, number: int) -> str:
        """The schema with this id; `UnknownSchema` if there is none."""
        if not isinstance(number, int) or isinstance(number, bool):
            raise NotAllowed(f"a schema's id is a whole number, not {number!r}")
        found = self._ask(lambda: self.client.get_schema(number), f"schema {number}")
        return str(found.schema_str)

    def codec(self, subject: str | None = None, schema: Any = None) -> Codec:
        """Values to bytes and back: `codec.encode(value)`, `codec.decode(bytes)`."""
        return Codec(self, subject, schema)

    def __repr__(self) -> str:
        return f"Registry({self._where}, {self.level()}, {count(len(self.subjects()), 'subject')})"

    def _all(self, subject: str) -> list[Version]:
        """A subject's versions; [] for a new subject."""
        numbers = self._or_none(lambda: self.client.get_versions(subject)) or []
        return [self.version(subject, number) for number in sorted(numbers)]

    def _or_none(self, ask: Callable[[], T]) -> T | None:
        try:
            return self._ask(ask, "it")
        except UnknownSchema:
            return None

    def _ask(self, ask: Callable[[], T], what: str) -> T:
        """Ask the client; its errors become errors of kqlib."""
        from confluent_kafka.schema_registry import SchemaRegistryError
        from confluent_kafka.schema_registry._sync.schema_registry_client import httpx  # the one that it uses

        try:
            return ask()
        except SchemaRegistryError as error:
            raise self._error(error, what) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            address = str(self.client.config().get("url"))
            raise NoRegistry(address=address, why=str(error) or type(error).__name__) from None

    def _error(self, error: Any, what: str) -> KqError:
        if error.http_status_code == 404:
            own = self._where == "in memory" and what.startswith("schema ")
            hint = " It knows only what this process registered; Registry(cluster=…) is shared" if own else ""
            return UnknownSchema(f"{what} is not in this registry ({self._where}).{hint}")
        if error.http_status_code == 409:
            return IncompatibleSchema(f"{what}: {error.error_message}. Nothing was registered")
        return NotAllowed(f"the registry refuses {what}: {error.error_message}")


def _client(level: str | None, cluster: Kafka | None, url: str | Mapping[str, Any] | None) -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    from kqlib.schemas.store import DEFAULT_LEVEL, SchemaStore, SharedSchemaStore

    if url is None:
        return SchemaStore(level or DEFAULT_LEVEL) if cluster is None else SharedSchemaStore(cluster, level)
    settings = {"url": url} if isinstance(url, str) else dict(url)
    try:
        return SchemaRegistryClient({"retries.wait.ms": 200, **settings})
    except (ValueError, TypeError, KeyError) as error:
        raise NotAllowed(f"this is no address of a schema registry: {error}") from None


def _subject(subject: Any) -> str:
    if not isinstance(subject, str) or not subject.strip() or not subject.isprintable():
        raise NotAllowed(
            f"a subject is a name, by habit the topic's with -value or -key: 'football-value', not {subject!r}"
        )
    return subject
