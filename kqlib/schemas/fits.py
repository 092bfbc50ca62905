"""Does a value fit a schema? fastavro encodes some values that do not: 1.5 as the int 1, 'no' as true, 1e300 as infinity.

In:  a parsed schema and a value.
Out: `misfit(schema, value)`: a clause that names the field, or '' for a value that fits.
     `quick(schema)`: a function that tests what fastavro does not test. True: the value fits. False: `misfit` finds the reason.

With `strict_allow_default`, which `wire` sets, fastavro itself refuses missing and unknown fields; `misfit` names the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from numbers import Integral, Real
from typing import Any

LARGEST_FLOAT = 3.4028235677973366e38  # above it a float becomes infinity
WORDS = {
    "null": "nothing but None",
    "boolean": "True or False",
    "int": "a whole number of 32 bits",
    "long": "a whole number of 64 bits",
    "float": "a number of 32 bits",
    "double": "a number",
    "bytes": "bytes",
    "string": "text",
    "array": "a list",
    "map": "a dict",
    "record": "a dict",
}


def quick(schema: Any) -> Callable[[Any], bool]:
    """Make the quick test of a schema."""
    tests = _Tests()
    expression = tests.test(schema, "v", "v") or "True"
    return tests.known.get(expression.removesuffix("(v)")) or tests.function(expression)


def named(schema: Any, found: dict[str, Any] | None = None) -> dict[str, Any]:
    """The named types inside a parsed schema."""
    found = {} if found is None else found
    for each in schema if isinstance(schema, list) else [schema]:
        if isinstance(each, dict):
            if "name" in each:
                found[each["name"]] = each
            for inner in (each.get("items"), each.get("values"), *(field["type"] for field in each.get("fields", ()))):
                named(inner, found)
    return found


def holds_itself(schema: Any, inside: frozenset[str] = frozenset()) -> bool:
    """Does a type in this parsed schema contain itself, so that a value may be of any depth?"""
    if isinstance(schema, list):
        return any(holds_itself(each, inside) for each in schema)
    if not isinstance(schema, dict):
        return schema in inside
    inside |= {schema["name"]} if "name" in schema else frozenset()
    inner = (schema.get("items"), schema.get("values"), *(field["type"] for field in schema.get("fields", ())))
    return any(holds_itself(each, inside) for each in inner)


def misfit(schema: Any, value: Any) -> str:
    """What is wrong with the value, and at which field; '' if nothing is."""
    return _misfit(schema, value, "", named(schema))


# --- the quick test: a Python expression made from the schema, as dataclasses make their __init__ ------------------------

# {x}: an expression for the value. {y}: a name that has the value once {x} was evaluated. fastavro itself checks text, bytes, symbols,
# unions, missing fields, and logical types but for the plain value under one: 'no' as a uuid, a timestamp of the year 12,000.
TESTS = {
    "null": "{x} is None",
    "boolean": "({x} is True or {y} is False)",
    "int": f"type({{x}}) is int and {-(2**31)} <= {{y}} <= {2**31 - 1}",
    "long": "type({x}) is int",
    "float": f"type({{x}}) in numbers and {-LARGEST_FLOAT} <= {{y}} <= {LARGEST_FLOAT}",
    "double": "type({x}) in numbers",
}


class _Tests:
    """Makes the test of one schema. Written for speed: `encode` should cost little more than fastavro alone."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {
            "numbers": frozenset({int, float}),
            "plain": frozenset({int, str}),
            "values": dict.values,
        }
        self.records: dict[str, str] = {}  # a record's name -> the name of its test

    def function(self, expression: str) -> Callable[[Any], bool]:
        """The expression as a function of v."""
        return eval(f"lambda v: {expression}", self.known)

    def test(self, schema: Any, x: str, y: str) -> str:
        """The expression that tests x; '' where there is nothing to test."""
        kind = "union" if isinstance(schema, list) else schema["type"] if isinstance(schema, dict) else schema
        if any(map(_is_logical, schema if kind == "union" else [schema])):
            return f"type({x}) not in plain"
        if kind == "union":
            return ""
        if kind in {"array", "map"}:
            inside = self.test(schema["items" if kind == "array" else "values"], "v", "v")
            return inside and f"all(map({self.keep(inside)}, {x if kind == 'array' else f'values({x})'}))"
        if kind in {"record", "error"}:
            return f"{self.record(schema)}({x})"
        return (
            TESTS[kind].format(x=x, y=y)
            if kind in TESTS
            else f"{self.records[kind]}({x})"
            if kind in self.records
            else ""
        )

    def record(self, schema: Any) -> str:
        """The name of the test of a record: each field's own."""
        name = self.records[schema["name"]] = f"record{len(self.records)}"  # before its fields: it may hold itself
        parts = []
        for at, field in enumerate(schema["fields"]):
            of = repr(field["name"])
            if inside := self.test(field["type"], f"(x{at} := v[{of}])", f"x{at}"):
                parts.append(f"({of} not in v or {inside})" if "default" in field else inside)
        self.known[name] = self.function(" and ".join(parts) or "True")
        return name

    def keep(self, expression: str) -> str:
        """The name under which an expression is a function."""
        name = f"each{len(self.known)}"
        self.known[name] = self.function(expression)
        return name


# --- the reason: only for a value that did not pass the quick test ------------------------------------------------------


def _misfit(schema: Any, value: Any, path: str, types: Mapping[str, Any]) -> str:
    schema = types.get(schema, schema) if isinstance(schema, str) else schema
    kind = "union" if isinstance(schema, list) else schema["type"] if isinstance(schema, dict) else schema
    if kind in {"record", "error"} and isinstance(value, Mapping):
        return _misfit_record(schema, value, path, types)
    if kind == "union":
        return _misfit_union(schema, value, path, types)
    if kind == "array" and isinstance(value, list | tuple):
        found = (_misfit(schema["items"], each, f"{path}[{at}]", types) for at, each in enumerate(value))
    elif kind == "map" and isinstance(value, Mapping):
        found = (_misfit(schema["values"], each, f"{path}{{{key!r}}}", types) for key, each in value.items())
    else:
        return "" if _is_one(kind, schema, value) else f"{_at(path)}takes {_takes(kind, schema)}, not {_shown(value)}"
    return next(filter(None, found), "")


def _misfit_record(schema: Any, value: Mapping[Any, Any], path: str, types: Mapping[str, Any]) -> str:
    fields = {field["name"]: field for field in schema["fields"]}
    if strange := [key for key in value if key not in fields]:
        where = f" in '{path}'" if path else ""
        return f"{strange[0]!r} is no field{where} of '{schema['name']}'; it has {', '.join(fields) or 'none'}"
    for name, field in fields.items():
        here = f"{path}.{name}" if path else name
        if name in value:
            if words := _misfit(field["type"], value[name], here, types):
                return words
        elif "default" not in field:
            return f"'{here}' is missing, and it has no default"
    return ""


def _misfit_union(branches: list[Any], value: Any, path: str, types: Mapping[str, Any]) -> str:
    """'' if one branch takes the value; else the reason of the most similar branch. The value (name, value) names its branch."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        branch_name, value = value
        branches = [each for each in branches if _name(each) == branch_name]
        if not branches:
            return f"{_at(path)}has no type {branch_name!r}"
    like, found = [_likeness(each, value, types) for each in branches], []
    for branch in branches:
        if not (words := _misfit(branch, value, path, types)):
            return ""
        found.append(words)
    best = max(like, default=0)
    return found[like.index(best)] if best else f"{_at(path)}takes {_takes('union', branches)}, not {_shown(value)}"


def _likeness(branch: Any, value: Any, types: Mapping[str, Any]) -> int:
    """How similar a value is to a branch that holds other values: 1, and 1 more for each field of the record."""
    branch = types.get(branch, branch) if isinstance(branch, str) else branch
    kind = branch["type"] if isinstance(branch, dict) else branch
    if kind in {"record", "error"} and isinstance(value, Mapping):
        return 1 + sum(field["name"] in value for field in branch["fields"])
    holds = {"array": list | tuple, "map": Mapping}
    return int(kind in holds and isinstance(value, holds[kind]))


def _name(branch: Any) -> str:
    """fastavro's name of a branch."""
    return str(branch.get("name", branch["type"])) if isinstance(branch, dict) else str(branch)


def _is_one(kind: Any, schema: Any, value: Any) -> bool:
    """Is the value one of this type? fastavro decides for types that are not in SOUND."""
    from fastavro.validation import validate

    if kind in SOUND and not _is_logical(schema):
        return SOUND[kind](value)
    try:
        return bool(validate(value, schema, raise_errors=False)) and (
            not _is_logical(schema) or _comes_back(schema, value)
        )
    except Exception:  # fastavro's validation may fail on a value of a very different type
        return False


def _is_logical(schema: Any) -> bool:
    return isinstance(schema, dict) and "logicalType" in schema


def _comes_back(schema: Any, value: Any) -> bool:
    """Can it be read? Else this raises an error."""
    from fastavro import schemaless_reader, schemaless_writer

    buffer = BytesIO()
    schemaless_writer(buffer, schema, value)
    buffer.seek(0)
    schemaless_reader(buffer, schema, None)
    return True


def _whole(value: Any, bits: int) -> bool:
    whole = isinstance(value, Integral) and not isinstance(value, bool)  # Integral: numpy's too
    return whole and -(2 ** (bits - 1)) <= int(value) < 2 ** (bits - 1)


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


SOUND: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: _whole(value, 32),
    "long": lambda value: _whole(value, 64),
    "float": lambda value: (
        _number(value) and not LARGEST_FLOAT < abs(value) < float("inf")
    ),  # infinity, nan: floats too
    "double": _number,
}


def _takes(kind: Any, schema: Any) -> str:
    if kind == "union":
        return " or ".join(_takes(each["type"] if isinstance(each, dict) else each, each) for each in schema)
    if kind == "enum":
        return f"one of {', '.join(map(repr, schema['symbols']))}"
    if kind == "fixed":
        return f"{schema['size']} bytes"
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    return f"a value of type {logical}" if logical else WORDS.get(kind, f"'{kind}'")


def _at(path: str) -> str:
    return f"'{path}' " if path else "this schema "


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:60] + ' …'} ({type(value).__name__})"
