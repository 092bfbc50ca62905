"""Where schemas are kept when there is no registry to run: in memory (`Shelf`), or in a topic that processes share (`Shared`).

In:  what Confluent's registry client is asked: register, look up, set a level. Out: the same answers, so that AvroSerializer, Codec
     and Registry cannot tell the difference. Underneath is confluent_kafka's own MockSchemaRegistryClient, which takes everything;
     what it lacks is here: levels that are kept, one form and one id for a schema, and a memory that outlives the process.

The topic `kq.schemas` has one partition, kept for ever. A record is JSON:

    {"subject": "football-value", "schema": "…", "format": 2}   register it
    {"subject": "football-value", "level": "FULL"}              from here on; without a subject for all others;
                                                                "first": only if none was said

Nobody decides by himself: a process writes what it wants, reads the log to its end and takes what all others take from it. Applying
the records in their order gives everyone the same ids, also to two processes that register at the same moment; a record that its
level refuses where it stands in the log is refused by all. An id is the schema's place among the accepted ones that were new.

A schema without a format was written by the first edition, which gave it an id for each subject and did not compare logical types.
It is applied by those rules, so that messages keep the ids that they carry.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic
from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryError
from confluent_kafka.schema_registry._sync.mock_schema_registry_client import MockSchemaRegistryClient, _SchemaStore

from kqlib.errors import KqError, NotAllowed, NotInTime
from kqlib.kafka.clients import Consumer, Producer
from kqlib.kafka.reading import LOOKER
from kqlib.schemas import form, rules

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

TOPIC = "kq.schemas"
FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
FORMAT = 2  # of a record that registers a schema
USUAL = "BACKWARD"  # as in Confluent's registry
PATIENCE = 15.0
READER = {
    "group_id": LOOKER,
    "group_protocol": "classic",
    "enable_partition_eof": True,
    "fetch_wait_max_ms": 10,
}


class OneId(_SchemaStore):
    """The mock's store, which would give a new id to each subject: a schema that is known keeps its id."""

    def set(self, registered_schema: RegisteredSchema) -> RegisteredSchema:
        """Keep this schema under its subject, as what it says it is."""
        plain = registered_schema.schema
        if (number := self.schema_index.get(plain)) is None:
            return super().set(registered_schema)
        guid, subject, version = self.schema_id_index[number].guid, registered_schema.subject, registered_schema.version
        again = RegisteredSchema(schema_id=number, guid=guid, schema=plain, subject=subject, version=version)
        with self.lock:
            self.subject_schemas[subject].add(again)
        return again


class Shelf(MockSchemaRegistryClient):
    """Confluent's registry in memory, with levels that it keeps."""

    def __init__(self, level: str = USUAL) -> None:
        super().__init__({"url": "mock://kqlib", "ssl.ca.location": False})  # it calls nobody: no certificates to load
        self._store = OneId()
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
        """From now on this level; without a subject for all that have none of their own."""
        with self._lock:
            self._levels[subject_name] = rules.level(level).name
        return {"compatibility": self._levels[subject_name]}

    def get_compatibility(self, subject_name: str | None = None) -> str:
        """A subject's own level, or that of all."""
        if subject_name not in self._levels:
            raise SchemaRegistryError(404, 40408, f"Subject '{subject_name}' does not have a level of its own")
        return self._levels[subject_name]

    def _find(self, subject: str, plain: Schema) -> RegisteredSchema | None:
        with suppress(SchemaRegistryError):
            found: RegisteredSchema = MockSchemaRegistryClient.lookup_schema(self, subject, plain)
            return found
        return None

    def _register_as_before(self, subject: str, schema: Any) -> Any:
        """What the first edition did: an id for each subject, and logical types are not compared."""
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


class Shared(Shelf):
    """The same in a topic: every process on the cluster sees the same schemas under the same ids."""

    def __init__(self, cluster: Kafka, level: str | None = None) -> None:
        super().__init__()
        self._cluster, self._next, self._said = cluster, 0, False
        _ensure(cluster)
        self._catch_up()
        if level is not None:
            self._ask({"level": level, "first": True}) if not self._said else None
            if (has := self._levels[None]) != level:
                change = f"Registry(cluster=…).set_level(None, {level!r}) changes it for all"
                raise NotAllowed(f"the schemas of this cluster are at level {has}, not {level}; {change}")

    def register_schema_full_response(self, subject_name: str, schema: Any, normalize_schemas: bool = False) -> Any:
        """Written to the log, read back, and what everybody takes from it."""
        self._cluster._check_here()
        with self._lock:
            plain = Schema(form.canonical(schema), "AVRO")
            self._catch_up()
            if known := self._find(subject_name, plain):
                return known
            self._check(subject_name, plain)  # what is refused already is not written
            return self._ask({"subject": subject_name, "schema": plain.schema_str, "format": FORMAT})

    def set_compatibility(self, subject_name: str | None = None, level: str | None = None) -> Any:
        """From this place in the log on, for every process."""
        name = rules.level(level).name
        self._cluster._check_here()
        with self._lock:
            self._ask({"subject": subject_name, "level": name})
        return {"compatibility": name}

    def get_compatibility(self, subject_name: str | None = None) -> str:
        """A subject's own level, or that of all, as of now."""
        self._catch_up()
        return super().get_compatibility(subject_name)

    def get_schema(self, schema_id: int, *args: Any, **how: Any) -> Any:
        """A schema never changes; only one that is not known yet is looked for in the log."""
        with suppress(SchemaRegistryError):
            return super().get_schema(schema_id)
        self._catch_up()
        return super().get_schema(schema_id)

    def lookup_schema(self, subject_name: str, schema: Any, *args: Any, **how: Any) -> Any:
        """The schema with its id, if anybody has registered it under this subject."""
        self._catch_up()
        return super().lookup_schema(subject_name, schema)

    def get_subjects(self, *args: Any, **how: Any) -> Any:
        """The subjects that anybody has registered."""
        self._catch_up()
        return super().get_subjects(*args, **how)

    def get_versions(self, subject_name: str, *args: Any, **how: Any) -> list[int]:
        """The numbers of a subject's versions, whoever registered them."""
        self._catch_up()
        return super().get_versions(subject_name)

    def get_latest_version(self, subject_name: str, fmt: str | None = None) -> Any:
        """A subject's newest version, whoever registered it."""
        self._catch_up()
        return super().get_latest_version(subject_name, fmt)

    # --- the log -----------------------------------------------------------------------------------------------------

    def _ask(self, record: dict[str, Any]) -> Any:
        """Write it, read it back in its place, and take what came of it."""
        with self._lock:
            at = _write(self._cluster, record)
            came = self._catch_up(at)[at]
        if isinstance(came, KqError):
            raise came
        return came

    def _catch_up(self, upto: int = -1) -> dict[int, Any]:
        """Apply what is new in the log. Out: by offset, what came of each: a registered schema, an error, None."""
        came: dict[int, Any] = {}
        self._cluster._check_here()  # before the lock: after a fork nobody would release it
        with self._lock:
            reader = Consumer(self._cluster.client(**READER) | {"auto.offset.reset": "error"})
            try:
                reader.assign([TopicPartition(TOPIC, 0, self._next)])
                deadline = time.monotonic() + PATIENCE
                while not self._read(reader, came) or self._next <= upto:
                    if time.monotonic() > deadline:
                        raise NotInTime(seconds=PATIENCE, why=f"the end of '{TOPIC}'", last=f"offset {self._next}")
            finally:
                reader.close()
        return came

    def _read(self, reader: Consumer, came: dict[int, Any]) -> bool:
        """Apply some records; True at the end of the log."""
        for message in reader.consume(1000, 0.05):
            if (error := message.error()) is None:
                came[message.offset()] = self._apply(message.value())
                self._next = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                return True
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                why = f"'{TOPIC}' no longer has its record {self._next}: it was cut or made anew, so ids mean something else"
                raise NotAllowed(f"{why}. Make a new Registry, and register again what it lacks")
        return False

    def _apply(self, value: bytes | None) -> Any:
        """What a record does here is what it does in every process: nothing else than the records before it counts."""
        try:
            said = json.loads(value or b"")
            subject, schema, level = (said.get(key) for key in ("subject", "schema", "level"))
            if level is not None:
                if not (said.get("first") and self._said):
                    Shelf.set_compatibility(self, subject, level)
                self._said |= subject is None
                return None
            if "format" not in said:
                return self._register_as_before(subject, schema)
            return Shelf.register_schema_full_response(self, subject, schema)
        except KqError as error:
            return error
        except (ValueError, TypeError, AttributeError):  # somebody else's record
            return None


def _write(cluster: Kafka, record: dict[str, Any]) -> int:
    """The offset that it got."""
    got: list[Any] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        got.append(message.offset() if error is None else error.str())

    value = json.dumps({key: each for key, each in record.items() if each is not None}, ensure_ascii=False)
    producer = Producer(cluster.client(acks="all"))  # twice is no harm: the second time it is known
    try:
        producer.produce(TOPIC, value.encode(), on_delivery=delivered)
    except KafkaException as error:
        got.append(error.args[0].str())
    producer.flush(PATIENCE)
    if not got or not isinstance(got[0], int):
        why = got[0] if got else f"no answer in {PATIENCE:g} s"
        raise NotAllowed(f"the schema could not be written to '{TOPIC}': {why}. Asking again is safe")
    return got[0]


def _ensure(cluster: Kafka) -> None:
    """The topic is there, with one partition: the order in it is what gives the ids."""
    if TOPIC not in cluster.describe().topics:
        try:
            cluster.admin.create_topics([NewTopic(TOPIC, 1, config=FOR_EVER)])[TOPIC].result(PATIENCE)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                why = f"'{TOPIC}' is not on this cluster and could not be created: {error.args[0].str()}"
                raise NotAllowed(f"{why}. Ask whoever deploys for it: one partition, kept for ever") from None
        cluster.wait_for_topic(TOPIC, 1)
    if (count := len(cluster.partitions(TOPIC))) != 1:
        raise NotAllowed(f"'{TOPIC}' has {count} partitions; ids are the order in one. It is left alone")
