"""Which schema may follow which: what a reader can read of a writer's values, and what each level requires. No Kafka.

In:  schemas as text, dicts or Confluent's `Schema`.
Out: `compare(reader, writer)`: a `Reason` for each thing that the reader cannot read.
     `explain(reader, writer)`: what happens to each field that the reader can read.
     `check(level, schema, earlier)`: a `Verdict`.
     `java(reader, writer)`: would Java's Avro accept the pair?

`avro.compatibility` judges each pair of plain types. This module adds what it lacks; each point was seen with fastavro:
  - The path. avro loses it inside a union, and gives a field's number instead of its name.
  - Two fields of the writer that go into one field of the reader (its name and its alias). avro accepts it; one field gets lost.
  - Two fields of the reader that take the same field of the writer. Only one of them gets it.
  - Bytes read as a string. avro accepts it, but bytes that are no UTF-8 fail.
  - An alias without a namespace. avro refuses it; by the specification it is in the reader's own namespace.
  - Logical types, which avro does not compare. fastavro converts by the writer's type, Java's Avro (and Spark) by the reader's.
    If the types differ, the same bytes are two values. So a reader that names a logical type reads only values of the same one.
    A reader that names none reads the plain value, as the specification says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kqlib.errors import IncompatibleSchema, NotAllowed
from kqlib.schemas import form

NAMED = {"record", "error", "enum", "fixed"}
LOGICAL = "other logical type"
UNITS = ("millis", "micros", "nanos")
DEFINED = {  # the logical types of Avro 1.12 by the type that stores them; other names are ignored
    "int": ("date", "time-millis"),
    "long": ("time-micros", *(f"{kind}-{unit}" for kind in ("timestamp", "local-timestamp") for unit in UNITS)),
    "string": ("uuid",),
    "bytes": ("decimal", "big-decimal"),
    "fixed": ("decimal", "duration", "uuid"),
}
JAVA_LACKS = {LOGICAL, "not text"}  # rules that Java's SchemaCompatibility does not have


@dataclass(frozen=True)
class Level:
    """What a new version of a schema must satisfy."""

    name: str
    reads_old: bool  # the new schema reads values of the versions before
    read_by_old: bool  # the versions before read values of the new schema
    all_versions: bool  # all versions before, not only the last one
    first: str  # who upgrades first


def _levels() -> Iterable[Level]:
    yield Level("NONE", False, False, False, "nobody can be first: stop all, or use a new topic")
    for suffix, all_versions in (("", False), ("_TRANSITIVE", True)):
        yield Level(f"BACKWARD{suffix}", True, False, all_versions, "the readers")
        yield Level(f"FORWARD{suffix}", False, True, all_versions, "the writers")
        yield Level(f"FULL{suffix}", True, True, all_versions, "either side")


LEVELS = {level.name: level for level in _levels()}


@dataclass(frozen=True)
class Reason:
    """One thing that a reader cannot read: the rule's short name, the field's path ('' is the whole value), and why."""

    rule: str
    path: str
    why: str

    def __str__(self) -> str:
        at = f"at '{self.path}'" if self.path else "as a whole"
        return f"{at}: {self.why} (rule: {self.rule})"


@dataclass(frozen=True)
class Finding:
    """A reason why a schema may not follow: the version that it conflicts with, and which of the two cannot read the other."""

    version: int
    new_reads: bool  # the new schema is the reader; else it is the writer
    reason: Reason

    def __str__(self) -> str:
        old, new = f"version {self.version}", "the new schema"
        reader, writer = (new, old) if self.new_reads else (old, new)
        return f"{reader} cannot read {writer} {self.reason}"


@dataclass(frozen=True, repr=False)
class Verdict:
    """May this schema follow? True or False, with the findings; the newest version comes first."""

    level: str
    findings: tuple[Finding, ...]
    against: tuple[int, ...]  # the versions that it was compared with

    @property
    def reasons(self) -> tuple[str, ...]:
        """The findings as sentences."""
        return tuple(map(str, self.findings))

    def refusal(self, subject: str) -> IncompatibleSchema:
        """The error for a schema that may not follow; its facts are those of the first finding."""
        first = self.findings[0]
        why = f"'{subject}' keeps {self.level}: {first}. Nothing was registered"
        facts = {"version": first.version, "path": first.reason.path, "rule": first.reason.rule}
        return IncompatibleSchema(why, subject=subject, level=self.level, **facts)

    def __bool__(self) -> bool:
        return not self.findings

    def __repr__(self) -> str:
        if self.findings:
            return "\n".join([f"✗ {self.level} refuses it", *(f"  {reason}" for reason in self.reasons)])
        versions = ", ".join(map(str, self.against))
        compared = f"compared with version {versions}" if versions else "nothing to compare with"
        return f"✓ {self.level} allows it ({compared})"


def level(name: Any) -> Level:
    """The level of that name; `NotAllowed` lists all levels."""
    found = LEVELS.get(name.upper()) if isinstance(name, str) else None
    if found is None:
        raise NotAllowed(f"{name!r} is no level; there are {', '.join(LEVELS)}")
    return found


def check(level_name: str, schema: Any, earlier: Sequence[tuple[int, Any]] = ()) -> Verdict:
    """May this schema follow these versions, given as (number, schema), oldest first?"""
    asked, new = level(level_name), form.canonical(schema)
    old = [(number, form.canonical(each)) for number, each in earlier]
    old = [] if asked.name == "NONE" else old if asked.all_versions else old[-1:]
    found: list[Finding] = []
    for number, text in reversed(old):
        if asked.reads_old:
            found += [Finding(number, True, reason) for reason in compare(new, text)]
        if asked.read_by_old:
            found += [Finding(number, False, reason) for reason in compare(text, new)]
    return Verdict(asked.name, tuple(found), tuple(number for number, _ in old))


def compare(reader: Any, writer: Any) -> tuple[Reason, ...]:
    """What the reader's schema cannot read of the writer's values; (): it reads all of them."""
    ours, theirs = form.canonical(reader), form.canonical(writer)
    if ours == theirs:  # then a decoder resolves nothing
        return ()
    return tuple(_walk(form.checked(ours), form.checked(theirs), "", frozenset(), _sources))


def java(reader: Any, writer: Any) -> bool:
    """Would Java's SchemaCompatibility accept the pair? The tests compare this with Java itself."""
    ours, theirs = (form.checked(form.canonical(each)) for each in (reader, writer))
    return all(reason.rule in JAVA_LACKS for reason in _walk(ours, theirs, "", frozenset(), _sources_in_java))


def explain(reader: Any, writer: Any) -> tuple[str, ...]:
    """What happens to the fields that differ in two records, in the reader's order."""
    new, old = (form.checked(form.canonical(each)) for each in (reader, writer))
    if new.type != "record" or old.type != "record":
        return ()
    sources = _sources(new, old)
    changes = [words for field in new.fields if (words := _becomes(field, sources[field.name]))]
    used = {source.name for found in sources.values() for source in found}
    return (*changes, *(f"'{field.name}' is dropped" for field in old.fields if field.name not in used))


def sources(reader: Any, writer: Any) -> dict[str, str | None]:
    """For each field of the reader's record the writer's field that it is read from; None if there is none."""
    new, old = (form.checked(form.canonical(each)) for each in (reader, writer))
    return {name: found[0].name if found else None for name, found in _sources(new, old).items()}


def _becomes(field: Any, sources: list[Any]) -> str:
    """How one field of the reader gets its value; '' if it is simply read."""
    if not sources:
        return f"'{field.name}' gets its default"
    source = sources[0]
    words = [f"comes from '{source.name}'"] if source.name != field.name else []
    bare = _logical(source.type) if not _logical(field.type) and field.type.type != "union" else ""
    if field.type.type != source.type.type or bare:
        words.append(f"becomes {field.type.type}" + (f" without {bare}" if bare else ""))
    elif field.type.type == "enum" and (lost := sorted(set(source.type.symbols) - set(field.type.symbols))):
        words.append(f"is {field.type.props.get('default')!r} for {', '.join(map(repr, lost))}")
    return f"'{field.name}' {', '.join(words)}" if words else ""


# --- walking through two schemas at once -------------------------------------------------------------------------------

Pairs = frozenset[tuple[int, int]]
Find = Callable[[Any, Any], dict[str, list[Any]]]


def _walk(reader: Any, writer: Any, path: str, inside: Pairs, find: Find) -> Iterable[Reason]:
    """The reasons, outermost first. inside: the pairs that are being compared, since a type may hold itself. find: see `_sources`."""
    pair = (id(reader), id(writer))
    if pair in inside:
        return
    inside |= {pair}
    if "union" in {reader.type, writer.type}:
        yield from _walk_union(reader, writer, path, inside, find)
    elif (reader.type, writer.type) == ("array", "array"):
        yield from _walk(reader.items, writer.items, f"{path}[]", inside, find)
    elif (reader.type, writer.type) == ("map", "map"):
        yield from _walk(reader.values, writer.values, f"{path}{{}}", inside, find)
    elif reader.type == writer.type == "record" and _same_name(reader, writer):
        yield from _walk_record(reader, writer, path, inside, find)
    elif (reader.type, writer.type) == ("string", "bytes"):
        yield Reason("not text", path, "bytes that are no UTF-8 cannot become a string")
    else:
        yield from list(_plain(reader, writer, path)) or _other_logical(reader, writer, path)


def _walk_record(reader: Any, writer: Any, path: str, inside: Pairs, find: Find) -> Iterable[Reason]:
    sources = find(reader, writer)
    for field, found in ((field, sources[field.name]) for field in reader.fields):
        here = f"{path}.{field.name}" if path else field.name
        if len(found) > 1:
            names = " and ".join(f"'{source.name}'" for source in found)
            yield Reason("two sources", here, f"the writer's fields {names} would both become this one")
        elif found:
            yield from _walk(field.type, found[0].type, here, inside, find)
        elif not field.has_default:
            yield Reason("no default", here, "the writer has no such field, and it has no default")


def _sources(reader: Any, writer: Any) -> dict[str, list[Any]]:
    """For each field of the reader the writer's fields with its name or one of its aliases."""
    names = {field.name: field.name for field in reader.fields}
    aliases = {alias: field.name for field in reader.fields for alias in field.props.get("aliases") or ()}
    found: dict[str, list[Any]] = {field.name: [] for field in reader.fields}
    for field in writer.fields:
        if goal := names.get(field.name, aliases.get(field.name)):
            found[goal].append(field)
    return found


def _sources_in_java(reader: Any, writer: Any) -> dict[str, list[Any]]:
    """The same by Java's rule: a field of the writer goes into every field of the reader that has its name or such an alias."""
    names = {field.name: {field.name, *(field.props.get("aliases") or ())} for field in reader.fields}
    return {name: [field for field in writer.fields if field.name in known] for name, known in names.items()}


def _walk_union(reader: Any, writer: Any, path: str, inside: Pairs, find: Find) -> Iterable[Reason]:
    """Each branch of the writer needs one of the reader: the one of the same logical type, else the first that fits."""
    choices = reader.schemas if reader.type == "union" else [reader]
    for branch in writer.schemas if writer.type == "union" else [writer]:
        fitting = [choice for choice in choices if _fits(choice, branch)]
        same = [choice for choice in fitting if _logical(branch) and _logical(choice) == _logical(branch)]
        goal = next(iter(same or fitting), None)
        if goal is None:
            takes = " or ".join(_type(choice) for choice in choices) or "nothing"
            yield Reason("lost branch", path, f"the value may be {_type(branch)}, and the reader takes {takes}")
        else:
            yield from _walk(goal, branch, path, inside, find)


def _fits(reader: Any, writer: Any) -> bool:
    """Does a decoder choose this branch for that one? It looks at types and names, not at what is inside."""
    if "union" in {reader.type, writer.type}:
        return True
    if reader.type == writer.type == "array":
        return _fits(reader.items, writer.items)
    if reader.type == writer.type == "map":
        return _fits(reader.values, writer.values)
    if reader.type == writer.type == "record":
        return _same_name(reader, writer)
    return all(reason.rule == "lost symbol" for reason in _plain(reader, writer, ""))


def _plain(reader: Any, writer: Any, path: str) -> Iterable[Reason]:
    """What `avro.compatibility` says of two types with nothing inside."""
    from avro.compatibility import ReaderWriterCompatibilityChecker

    if reader.type == writer.type == "record":  # their names differ, so the fields do not matter
        yield _other_name(reader, writer, path)
        return
    result = ReaderWriterCompatibilityChecker().get_compatibility(reader, writer)
    for found in result.incompatibilities:
        kind = found.value
        if kind == "name_mismatch":
            if not _same_name(reader, writer):
                yield _other_name(reader, writer, path)
        elif kind == "missing_enum_symbols":
            lost = ", ".join(repr(symbol) for symbol in writer.symbols if symbol not in reader.symbols)
            yield Reason("lost symbol", path, f"the enum has no {lost}, and no default for what it does not know")
        elif kind == "fixed_size_mismatch":
            yield Reason("other size", path, f"{writer.size} bytes do not fit {reader.size}")
        else:
            yield Reason("other type", path, f"{_type(writer)} cannot become {_type(reader)}")


def _other_logical(reader: Any, writer: Any, path: str) -> Iterable[Reason]:
    """A reader that names a logical type reads only values of the same one."""
    ours, theirs = _logical(reader), _logical(writer)
    if ours not in {"", theirs}:
        wrote = theirs or f"plain {writer.type}"
        yield Reason(LOGICAL, path, f"a {wrote} would be read as a {ours}, and its value may change")


def _logical(schema: Any) -> str:
    """The logical type with its parameters, as in 'decimal(6, 2)'; '' if Avro defines none of that name for this type."""
    name, precision = schema.props.get("logicalType"), schema.props.get("precision")
    if name not in DEFINED.get(schema.type, ()) or (name == "decimal" and precision is None):
        return ""
    return f"decimal({precision}, {schema.props.get('scale', 0)})" if name == "decimal" else str(name)


def _other_name(reader: Any, writer: Any, path: str) -> Reason:
    return Reason("other name", path, f"{_type(writer)} is not {_type(reader)}, and no alias says so")


def _same_name(reader: Any, writer: Any) -> bool:
    """Named types match by their short names or by an alias of the reader, which is in the reader's namespace by default."""
    space = reader.fullname.rpartition(".")[0]
    aliases = (a if "." in a or not space else f"{space}.{a}" for a in reader.props.get("aliases") or ())
    return reader.name == writer.name or writer.fullname in aliases


def _type(schema: Any) -> str:
    """A type in words: 'int', "enum 'League'"."""
    return f"{schema.type} '{schema.name}'" if schema.type in NAMED else str(schema.type)
