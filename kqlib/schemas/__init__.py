"""Avro schemas and their versions: which change is safe, where schemas are kept, how a value becomes bytes and back.

    registry = kq.schemas.Registry(level="BACKWARD")          # or Registry(cluster=cluster): shared, in the topic kq.schemas
    codec = registry.codec("football-value", schema)          # registers the schema, or says why it may not follow
    codec.decode(codec.encode({"game": "ARS-CHE"}))

Modules:

    form      one form for a schema                       wire      the five bytes and the codec
    rules     which schema may follow which; no Kafka     store     schemas in memory or in a topic
    fits      does a value fit its schema?                registry  what a person calls
"""

# ruff: noqa: E402

from kqlib.extras import check as _needs

_needs("avro", "schemas", "avro", "fastavro")

from kqlib.schemas.form import canonical as canonical
from kqlib.schemas.registry import Registry as Registry, Version as Version
from kqlib.schemas.rules import (
    LEVELS as LEVELS,
    Finding as Finding,
    Level as Level,
    Reason as Reason,
    Verdict as Verdict,
    check as check,
    compare as compare,
    explain as explain,
    sources as sources,
)
from kqlib.schemas.wire import Codec as Codec, Message as Message, split as split
