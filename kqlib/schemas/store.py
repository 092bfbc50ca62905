"""Where schemas are kept without a registry server: in memory (`SchemaStore`), or in a topic (`SharedSchemaStore`).

In:  what Confluent's registry client is asked: register, look up, set a level.
Out: the same answers, so that AvroSerializer, Codec and Registry work with either.

Both extend confluent_kafka's MockSchemaRegistryClient. They add what it lacks: levels that are enforced, one form and one id for a
schema, and a memory that outlives the process.

The topic `kq.schemas` has one partition and is kept for ever. A record is JSON:

    {"subject": "football-value", "schema": "…", "format": 2}   register it
    {"subject": "football-value", "level": "FULL"}              the level from here on; without a subject for all others;
                                                                "first": only if no level was set before

A process writes a record, reads the log to its end, and takes the result of applying it. Every process applies the records in the
same order, so all of them get the same ids, even if two register at the same moment. A schema that its level refuses at its place in
the log is refused by all. An id is the schema's place among the accepted schemas that were new.

A schema without "format" was written by the first edition. That gave a schema an id for each subject and did not compare logical
types. Such a record is applied by those rules, because messages carry the ids.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryError
from confluent_kafka.schema_registry._sync.mock_schema_registry_client import MockSchemaRegistryClient, _SchemaStore

from kqlib.errors import KqError, NotAllowed
from kqlib.kafka import reading
from kqlib.kafka.writing import ensure, write
from kqlib.schemas import form, rules

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

TOPIC = "kq.schemas"
FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
FORMAT = 2  # of a record that registers a schema
DEFAULT_LEVEL = "BACKWARD"  # as in Confluent's registry
TIMEOUT = 15.0  # seconds for a write


class OneIdStore(_SchemaStore):
    """The mock's store, with one id for a schema under all subjects; the mock itself gives a new id to each subject."""

    def set(self, registered_schema: RegisteredSchema) -> RegisteredSchema:
        """Keep this schema under its subject."""
        plain = registered_schema.schema
        if (number := self.schema_index.get(plain)) is None:
            return super().set(registered_schema)
        guid, subject, version = self.schema_id_index[number].guid, registered_schema.subject, registered_schema.version
        again = RegisteredSchema(schema_id=number, guid=guid, schema=plain, subject=subject, version=version)
        with self.lock:
            self.subject_schemas[subject].add(again)
        return again


class SchemaStore(MockSchemaRegistryClient):
    """Confluent's registry in memory, with levels that are enforced."""

    def __init__(self, level: str = DEFAULT_LEVEL) -> None:
        super().__init__({"url": "mock://kqlib", "ssl.ca.location": False})  # no connection, so no certificates
        self._store = OneIdStore()
        self._levels: dict[str | None, str] = {None: level}
        self._lock = threading.RLock()

    def register_schema_full_response(self, subject_name: str, schema: Any, normalize_schemas: bool = False) -> Any:
        """The schema with its id; `IncompatibleSchema` if the subject's level refuses it."""
        with self._lock:
            plain = Schema(form.canonical(schema), "AVRO")
            if known := self._find(subject_name, plain):
                return known
            self._check(subject_name, plain)
            return super().register_schema_full_response(subject_name, plain)

    def lookup_schema(self, subject_name: str, schema: Any, *args: Any, **how: Any) -> Any:
        """The schema with its id, if it is registered under this subject."""
        return super().lookup_schema(subject_name, Schema(form.canonical(schema), "AVRO"))

    def get_versions(self, subject_name: str, *args: Any, **how: Any) -> list[int]:
        """The numbers of a subject's versions, in order."""
        if versions := sorted(super().get_versions(subject_name)):
            return versions
        raise SchemaRegistryError(404, 40401, f"Subject '{subject_name}' not found.")

    def set_compatibility(self, subject_name: str | None = None, level: str | None = None) -> Any:
        """Set the level of a subject; without a subject that of all subjects without a level of their own."""
        with self._lock:
            self._levels[subject_name] = rules.level(level).name
        return {"compatibility": self._levels[subject_name]}

    def get_compatibility(self, subject_name: str | None = None) -> str:
        """A subject's own level; without a subject the common one."""
        if subject_name not in self._levels:
            raise SchemaRegistryError(404, 40408, f"Subject '{subject_name}' does not have a level of its own")
        return self._levels[subject_name]

    def _find(self, subject: str, plain: Schema) -> RegisteredSchema | None:
        with suppress(SchemaRegistryError):
            return MockSchemaRegistryClient.lookup_schema(self, subject, plain)
        return None

    def _register_first_edition(self, subject: str, schema: Any) -> Any:
        """Register as the first edition did: an id for each subject, and logical types are not compared."""
        plain, ids = Schema(form.canonical(schema), "AVRO"), self._store.schema_index
        if known := self._find(subject, plain):
            return known
        self._check(subject, plain, logical=False)
        first = ids.pop(plain, None)
        added = super().register_schema_full_response(subject, plain)
        ids[plain] = first or added.schema_id
        return added

    def _check(self, subject: str, plain: Schema, logical: bool = True) -> None:
        numbers = sorted(MockSchemaRegistryClient.get_versions(self, subject))
        earlier = [(n, MockSchemaRegistryClient.get_version(self, subject, n).schema) for n in numbers]
        verdict = rules.check(self._levels.get(subject, self._levels[None]), plain, earlier)
        if any(logical or finding.reason.rule != rules.LOGICAL for finding in verdict.findings):
            raise verdict.refusal(subject)


class SharedSchemaStore(SchemaStore):
    """The same in a topic: every process on the cluster sees the same schemas under the same ids."""

    def __init__(self, cluster: Kafka, level: str | None = None) -> None:
        super().__init__()
        self._cluster, self._next, self._level_was_set = cluster, 0, False
        _ensure_topic(cluster)
        self._catch_up()
        if level is not None:
            if not self._level_was_set:
                self._append({"level": level, "first": True})
            if (current := self._levels[None]) != level:
                change = f"Registry(cluster=…).set_level(None, {level!r}) changes it for all"
                raise NotAllowed(f"the schemas of this cluster are at level {current}, not {level}; {change}")

    def register_schema_full_response(self, subject_name: str, schema: Any, normalize_schemas: bool = False) -> Any:
        """Write the schema to the log and return what applying the log makes of it."""
        self._cluster._check_here()
        with self._lock:
            plain = Schema(form.canonical(schema), "AVRO")
            self._catch_up()
            if known := self._find(subject_name, plain):
                return known
            self._check(subject_name, plain)  # a schema that is refused already is not written
            return self._append({"subject": subject_name, "schema": plain.schema_str, "format": FORMAT})

    def set_compatibility(self, subject_name: str | None = None, level: str | None = None) -> Any:
        """The level for every process, from this place in the log on."""
        name = rules.level(level).name
        self._cluster._check_here()
        with self._lock:
            self._append({"subject": subject_name, "level": name})
        return {"compatibility": name}

    def get_compatibility(self, subject_name: str | None = None) -> str:
        """A subject's own level, or the common one, as of now."""
        self._catch_up()
        return super().get_compatibility(subject_name)

    def get_schema(self, schema_id: int, *args: Any, **how: Any) -> Any:
        """A schema never changes, so only an unknown one is looked for in the log."""
        with suppress(SchemaRegistryError):
            return super().get_schema(schema_id)
        self._catch_up()
        return super().get_schema(schema_id)

    def lookup_schema(self, subject_name: str, schema: Any, *args: Any, **how: Any) -> Any:
        """The schema with its id, if any process has registered it under this subject."""
        self._catch_up()
        return super().lookup_schema(subject_name, schema)

    def get_subjects(self, *args: Any, **how: Any) -> Any:
        """The subjects of all processes."""
        self._catch_up()
        return super().get_subjects(*args, **how)

    def get_versions(self, subject_name: str, *args: Any, **how: Any) -> list[int]:
        """The numbers of a subject's versions, of all processes."""
        self._catch_up()
        return super().get_versions(subject_name)

    def get_version(self, subject_name: str, *args: Any, **how: Any) -> Any:
        """A version never changes, so only an unknown one is looked for in the log."""
        with suppress(SchemaRegistryError):
            return super().get_version(subject_name, *args, **how)
        self._catch_up()
        return super().get_version(subject_name, *args, **how)

    def get_latest_version(self, subject_name: str, fmt: str | None = None) -> Any:
        """A subject's newest version, of all processes."""
        self._catch_up()
        return super().get_latest_version(subject_name, fmt)

    # --- the log -----------------------------------------------------------------------------------------------------

    def _append(self, record: dict[str, Any]) -> Any:
        """Write a record, apply the log up to it, and return its result."""
        with self._lock:
            offset = _write(self._cluster, record)
            result = self._catch_up()[offset]
        if isinstance(result, KqError):
            raise result
        return result

    def _catch_up(self) -> dict[int, Any]:
        """Apply the new records. Out: the result of each offset: a registered schema, an error, or None."""
        results: dict[int, Any] = {}
        self._cluster._check_here()  # before the lock: after a fork no thread would release it
        with self._lock:
            at = (TOPIC, 0)
            low, end = reading.bounds(self._cluster, TOPIC)[at]
            if not low <= self._next <= end:
                why = f"'{TOPIC}' no longer has its record {self._next}: it was cut or made anew, so ids mean something else"
                raise NotAllowed(f"{why}. Make a new Registry, and register again what it lacks")
            if self._next < end:
                for message in reading.read(self._cluster, {at: self._next}, {at: end}):
                    results[message.offset()] = self._apply(message.value())
                self._next = end
        return results

    def _apply(self, value: bytes | None) -> Any:
        """Apply a record. The result depends on the records before it only, so it is the same in every process."""
        try:
            record = json.loads(value or b"")
            subject, schema, level = (record.get(key) for key in ("subject", "schema", "level"))
            if level is not None:
                if not (record.get("first") and self._level_was_set):
                    SchemaStore.set_compatibility(self, subject, level)
                self._level_was_set |= subject is None
                return None
            if "format" not in record:
                return self._register_first_edition(subject, schema)
            return SchemaStore.register_schema_full_response(self, subject, schema)
        except KqError as error:
            return error
        except (ValueError, TypeError, AttributeError):  # not a record of ours
            return None


def _write(cluster: Kafka, record: dict[str, Any]) -> int:
    """Write a record; out: its offset."""
    value = json.dumps({key: each for key, each in record.items() if each is not None}, ensure_ascii=False)
    entry, stored = {"topic": TOPIC, "value": value.encode()}, list[Any]()
    if why := write(cluster, [entry], TIMEOUT, stored, acks="all"):  # a second copy of a record changes nothing
        raise NotAllowed(f"the schema could not be written to '{TOPIC}': {why}. Asking again is safe")
    return int(stored[0].offset())


def _ensure_topic(cluster: Kafka) -> None:
    """Create the topic if it is missing. It has one partition, because its order gives the ids."""
    ensure(cluster, TOPIC, FOR_EVER, TIMEOUT, "Ask your administrator for it: one partition, kept for ever")
    if (count := len(cluster.partitions(TOPIC))) != 1:
        raise NotAllowed(f"'{TOPIC}' has {count} partitions; ids are the order in one. It is left alone")
