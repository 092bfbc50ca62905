"""The exercises of 05-avro-versions: the five bytes, what a reader lacks, and who upgrades first."""

from kqlib.workshop.checks import Case, Exercise


def take_apart(message: bytes) -> tuple[int, bytes] | None:
    if len(message) < 5 or message[0] != 0:
        return None
    return int.from_bytes(message[1:5], "big"), message[5:]


def little_end_first(message: bytes) -> tuple[int, bytes] | None:
    if len(message) < 5 or message[0] != 0:
        return None
    return int.from_bytes(message[1:5], "little"), message[5:]


def any_magic(message: bytes) -> tuple[int, bytes] | None:
    return (int.from_bytes(message[1:5], "big"), message[5:]) if len(message) >= 5 else None


def with_a_value(message: bytes) -> tuple[int, bytes] | None:
    return take_apart(message) if len(message) > 5 else None


FIVE_BYTES = Exercise(
    id="05.1",
    ask="one magic byte that is 0, four bytes of id with the largest first, and the rest is the value",
    cases=[
        Case((b"\x00\x00\x00\x00\x01\x0eARS-CHE",), (1, b"\x0eARS-CHE"), "schema 1, then the value"),
        Case((b"\x00\x00\x01\x00\x02\x06",), (65538, b"\x06"), "ids grow past one byte"),
        Case((b'{"game": "ARS-CHE"}',), None, "JSON: its first byte is {"),
        Case((b"\x00\x00\x00",), None, "three bytes have no room for an id"),
        Case((b"",), None, "nothing at all"),
        Case((b"\x00\x00\x00\x00\x07",), (7, b""), "a record without fields takes no bytes"),
    ],
    hints=(
        "message[0] is the magic byte, message[1:5] the id, message[5:] the value. What if there are fewer than five?",
        'int.from_bytes(message[1:5], "big") puts the largest byte first, as all networks do.',
    ),
    solution=take_apart,
    wrong=(little_end_first, any_magic, with_a_value),
)


def lacks(reader: dict, writer: list) -> list:
    return [
        name
        for name, field in reader.items()
        if name not in writer and "default" not in field and not set(field.get("aliases", [])) & set(writer)
    ]


def lacks_without_aliases(reader: dict, writer: list) -> list:
    return [name for name, field in reader.items() if name not in writer and "default" not in field]


def lacks_without_defaults(reader: dict, writer: list) -> list:
    return [name for name, field in reader.items() if not {name, *field.get("aliases", [])} & set(writer)]


def truthy_defaults(reader: dict, writer: list) -> list:
    return [name for name in lacks_without_defaults(reader, writer) if not reader[name].get("default")]


def the_other_way_round(reader: dict, writer: list) -> list:
    return [name for name in writer if name not in reader]


LACKS = Exercise(
    id="05.2",
    ask="a field of the reader comes from the writer's field of its name or of an alias, or from its own default",
    cases=[
        Case(({"game": {}, "minute": {}}, ["game", "minute"]), [], "the same fields"),
        Case(({"game": {}}, ["game", "minute"]), [], "what the reader does not know is skipped"),
        Case(({"game": {}, "stadium": {}}, ["game"]), ["stadium"], "a new field without a default"),
        Case(({"game": {}, "customer": {"default": ""}}, ["game"]), [], "a default may be empty"),
        Case(({"player": {"default": None}}, []), [], "a default may be null"),
        Case(({"minute": {"aliases": ["min"]}}, ["min"]), [], "an alias finds the old name"),
        Case(({"min": {}}, ["minute"]), ["min"], "the old reader knows nothing of the new name"),
    ],
    hints=(
        "Go through the reader's fields, not the writer's. For each there are three ways to a value: name, alias, default.",
        'An empty or null default is a default too: ask "default" in field, not what it is.',
    ),
    solution=lacks,
    wrong=(lacks_without_aliases, lacks_without_defaults, truthy_defaults, the_other_way_round),
)


def who_first(new_reads_old: bool, old_reads_new: bool) -> str:
    if new_reads_old:
        return "whoever likes" if old_reads_new else "readers"
    return "writers" if old_reads_new else "nobody"


def the_wrong_side(new_reads_old: bool, old_reads_new: bool) -> str:
    return {"readers": "writers", "writers": "readers"}.get(who_first(new_reads_old, old_reads_new), "whoever likes")


def always_readers(new_reads_old: bool, old_reads_new: bool) -> str:
    return "readers"


def never_nobody(new_reads_old: bool, old_reads_new: bool) -> str:
    return "readers" if new_reads_old else "writers"


FIRST = Exercise(
    id="05.3",
    ask="whoever can live with what is there today upgrades first",
    cases=[
        Case((True, False), "readers", "BACKWARD: a new reader reads what old writers still write"),
        Case((False, True), "writers", "FORWARD: old readers read what new writers write"),
        Case((True, True), "whoever likes", "FULL: both"),
        Case((False, False), "nobody", "in between, somebody cannot read"),
    ],
    hints=(
        "If the readers go first, new readers meet old writers for a while. Which of the two facts must hold?",
        "Readers first needs new_reads_old. Writers first needs old_reads_new.",
    ),
    solution=who_first,
    wrong=(the_wrong_side, always_readers, never_nobody),
)
