"""One text for each schema, however it is written.

In:  Avro's JSON as text, as dicts and lists, or as Confluent's `Schema`.
Out: `canonical(schema)`: compact text with its keys in one order. From that text: `checked` (objects of the library avro, to compare)
     and `parsed` (objects of fastavro, to encode and decode).

A schema must be valid for both libraries, because each misses mistakes that the other finds.
"""

from __future__ import annotations

import json
import warnings
from functools import lru_cache
from io import BytesIO
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.schemas import fits

ORDER = ("name", "namespace", "type", "aliases", "doc", "size", "symbols", "items", "values", "fields", "logicalType")
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def canonical(schema: Any) -> str:
    """The schema as text; `NotAllowed` says what is wrong with it."""
    tree = _tree(schema)
    try:
        text = json.dumps(_ordered(tree), ensure_ascii=False, separators=(",", ":"))
        text.encode()  # a lone surrogate is no text
        parsed(text)
        checked(text)
    except Exception as error:  # each library raises its own kinds of error
        raise NotAllowed(f"this is no Avro schema: {_words(error)}") from None
    return text


@lru_cache(maxsize=512)
def parsed(text: str) -> Any:
    """The schema as fastavro encodes and decodes with it."""
    from fastavro.schema import parse_schema

    schema = parse_schema(json.loads(text))
    _mend_defaults(schema, fits.named(schema))
    return schema


@lru_cache(maxsize=512)
def checked(text: str) -> Any:
    """The schema as `avro.compatibility` compares it."""
    import avro.schema

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # avro takes an unknown logical type as the plain type, which is right
        return avro.schema.parse(text)


def name(text: str) -> str:
    """A schema's own name: 'Event'; without a name its type."""
    tree = json.loads(text)
    if isinstance(tree, list):
        return "union"
    return str(tree.get("name", tree["type"])).rsplit(".", 1)[-1] if isinstance(tree, dict) else str(tree)


def _tree(schema: Any) -> Any:
    text = getattr(schema, "schema_str", schema)  # Confluent's Schema
    if isinstance(text, dict | list):
        return text
    if not isinstance(text, str):
        raise NotAllowed(f"a schema is Avro's JSON, as text or as a dict, not {type(schema).__name__}")
    if text.strip() in PRIMITIVES:
        return text.strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotAllowed(f"this is no Avro schema: it is no JSON ({error})") from None


def _ordered(tree: Any) -> Any:
    """Keys in one order, without the keys that fastavro adds. Defaults are values and stay as they are."""
    if isinstance(tree, list):
        return [_ordered(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    keys = [key for key in tree if not str(key).startswith("__")]
    if set(keys) == {"type"} and tree["type"] in PRIMITIVES:
        return tree["type"]  # {"type": "int"} is "int"
    sort = sorted(keys, key=lambda key: (ORDER.index(key) if key in ORDER else len(ORDER), str(key)))
    return {key: tree[key] if key == "default" else _ordered(tree[key]) for key in sort}


def _mend_defaults(schema: Any, types: dict[str, Any]) -> None:
    """Turn defaults into what a reader gets: bytes, dates, whole records. fastavro would give the reader the schema's own JSON."""
    for each in schema if isinstance(schema, list) else [schema]:
        if isinstance(each, dict):
            for field in each.get("fields", ()):
                _mend_defaults(field["type"], types)  # first: a default record takes the defaults of its fields
                if "default" in field:
                    value = _with_bytes(field["type"], field["default"], types)
                    field["default"] = _as_read(field["type"], value, types)
            _mend_defaults([each.get("items"), each.get("values")], types)


def _as_read(schema: Any, value: Any, types: dict[str, Any]) -> Any:
    """A default, written and read; as it is, if it is no value of its type."""
    from fastavro import schemaless_reader, schemaless_writer

    if not (isinstance(schema, list | dict) or schema in types) or value is None:
        return value
    one = {"type": "record", "name": "one", "fields": [{"name": "value", "type": schema}]}
    whole, buffer = {**one, "__fastavro_parsed": True, "__named_schemas": types}, BytesIO()
    try:
        schemaless_writer(buffer, whole, {"value": value})
        buffer.seek(0)
        return schemaless_reader(buffer, whole)["value"]
    except Exception:  # fastavro lets such a schema pass, and old ones must stay readable
        return value


def _with_bytes(schema: Any, value: Any, types: dict[str, Any]) -> Any:
    """A default with its bytes as bytes. The default of a union belongs to its first branch."""
    schema = schema[0] if isinstance(schema, list) and schema else schema
    schema = types.get(schema, schema) if isinstance(schema, str) else schema
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in {"bytes", "fixed"} and isinstance(value, str):
        return value.encode("latin-1")
    if kind == "array" and isinstance(value, list):
        return [_with_bytes(schema["items"], each, types) for each in value]
    if kind == "map" and isinstance(value, dict):
        return {key: _with_bytes(schema["values"], each, types) for key, each in value.items()}
    if kind == "record" and isinstance(value, dict):
        fields = {field["name"]: field["type"] for field in schema["fields"]}
        return {key: _with_bytes(fields.get(key), each, types) for key, each in value.items()}
    return value


def _words(error: Exception) -> str:
    """A library's complaint as a clause."""
    text = str(error).strip() or type(error).__name__
    if type(error).__name__ == "UnknownType":
        return f"it has no type {text!r}"
    if isinstance(error, KeyError):
        return f"{text} is missing"
    return text if len(text) <= 300 else text[:300] + " …"
