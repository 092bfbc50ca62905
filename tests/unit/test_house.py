"""Which part of kqlib may import which: two floors, three ways up, no circles. Imports for types count as well."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import kqlib

ROOT = Path(kqlib.__file__).parent
Graph = Mapping[str, set[str]]

# They open the workshop when they are asked to.
ENTRIES = ("kqlib", "kqlib.kafka", "kqlib.command")
# The layers of the queue, from the lowest, as ARCHITECTURE.md lists their modules.
TREE = (ROOT.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
ROWS = [re.findall(rf"^ {{24}}{layer} +(.+)$", TREE, re.MULTILINE)[0] for layer in ("pure", "talk", "verbs")]
LAYERS = [[f"kqlib.queue.{name}" for name in row.split()] for row in ROWS]
# They compute: nothing that they import, and nothing that this imports, talks to Kafka.
PURE = (
    *("kqlib.errors", "kqlib.keys", "kqlib.sizing", "kqlib.text", "kqlib.topic_rules"),
    *LAYERS[0],
    *("kqlib.schemas.rules", "kqlib.workshop.view", "kqlib.workshop.groups.values", "kqlib.workshop.groups.timeline"),
)
# Who starts a process without the reaper and `workshop/children.py`: the reason stands at each Popen.
STARTERS = {
    *("kqlib.runtime.reaper", "kqlib.kafka.members", "kqlib.command.queue.work", "kqlib.workshop.cluster.up"),
}
# Who may not know whom: the queue knows no part that builds on it.
BELOW = {
    "kqlib.runtime": (
        "kqlib.kafka",
        "kqlib.topics",
        "kqlib.queue",
        "kqlib.schemas",
        "kqlib.share",
        "kqlib.virtual",
        "kqlib.spark",
    ),
    "kqlib.kafka": ("kqlib.topics", "kqlib.queue", "kqlib.schemas", "kqlib.share", "kqlib.virtual", "kqlib.spark"),
    "kqlib.queue": ("kqlib.schemas", "kqlib.share", "kqlib.virtual", "kqlib.spark", "kqlib.command"),
    "kqlib.schemas": ("kqlib.queue", "kqlib.share", "kqlib.virtual", "kqlib.spark", "kqlib.command"),
    "kqlib.share": ("kqlib.virtual", "kqlib.spark", "kqlib.command"),
    "kqlib.virtual": ("kqlib.share", "kqlib.spark", "kqlib.command"),
    "kqlib.spark": ("kqlib.share", "kqlib.virtual", "kqlib.command"),
    "kqlib.workshop": ("kqlib.command",),
}


def modules() -> dict[str, Path]:
    """Every module of kqlib by its name."""
    found = {}
    for file in ROOT.rglob("*.py"):
        parts = ["kqlib", *file.relative_to(ROOT).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(text: str, known: Mapping[str, object]) -> Iterator[str]:
    """The modules of kqlib that this text imports, wherever it does so."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for each in node.names:
                inside = f"{node.module}.{each.name}"
                yield inside if inside in known else node.module


@pytest.fixture(scope="module")
def graph() -> Graph:
    there = modules()
    return {name: set(imports(file.read_text(encoding="utf-8"), there)) for name, file in there.items()}


def within(module: str, *parts: str) -> bool:
    """Is it one of these parts, or in one of them?"""
    return any(module == part or module.startswith(f"{part}.") for part in parts)


def reached(graph: Graph, name: str) -> set[str]:
    """What this name leads to, over any number of imports."""
    seen, left = set[str](), [name]
    while left:
        new = graph.get(left.pop(), set()) - seen
        seen |= new
        left += new
    return seen


def circles(graph: Graph) -> list[list[str]]:
    """The groups of names that lead to each other."""
    reach = {name: reached(graph, name) for name in graph}
    found = {tuple(sorted({name, *(to for to in seen if name in reach.get(to, ()))})) for name, seen in reach.items()}
    return sorted(list(group) for group in found if len(group) > 1)


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": set()}) == [["a", "b", "c"]]


def test_imports_for_types_and_those_inside_of_functions_count() -> None:
    text = "if TYPE_CHECKING:\n    from k.a import b\ndef f():\n    import k.c\n    from k import d\n"
    assert sorted(imports(text, {"k": 1, "k.a": 1, "k.c": 1, "k.d": 1})) == ["k.a", "k.c", "k.d"]


def test_only_three_entries_lead_to_the_workshop(graph: Graph) -> None:
    outside = {name: tos for name, tos in graph.items() if not within(name, "kqlib.workshop", "kqlib.command")}
    upwards = {name for name, tos in outside.items() if any(within(to, "kqlib.workshop") for to in tos)}
    assert upwards == {"kqlib", "kqlib.kafka"}


@pytest.mark.parametrize("place", BELOW)
def test_a_part_does_not_know_those_that_build_on_it(graph: Graph, place: str) -> None:
    found = {
        (name, to) for name, tos in graph.items() if within(name, place) for to in tos if within(to, *BELOW[place])
    }
    assert found == set()


@pytest.mark.parametrize("part", PURE)
def test_what_computes_leads_to_nothing_that_talks_to_kafka(graph: Graph, part: str) -> None:
    for name in filter(lambda name: within(name, part), graph):
        assert [to for to in reached(graph, name) if within(to, "kqlib.kafka")] == [], name


@pytest.mark.parametrize("part", PURE)
def test_what_computes_imports_no_client(graph: Graph, part: str) -> None:
    """`keys` alone: confluent-kafka has murmur2."""
    files = modules()
    inside = {name for name in graph if within(name, part)}
    for name in inside.union(*(reached(graph, name) for name in inside)) - {"kqlib.keys"}:
        assert not re.search(r"^ *(from|import) confluent_kafka", files[name].read_text(encoding="utf-8"), re.M), name


def test_each_layer_of_the_queue_imports_its_own_and_lower_ones(graph: Graph) -> None:
    number = {name: n for n, names in enumerate(LAYERS) for name in names}
    assert number.keys() == {name for name in graph if name.startswith("kqlib.queue.")}
    upwards = {(name, to) for name in number for to in graph[name] if number.get(to, 0) > number[name]}
    assert upwards == set()


def test_the_reaper_starts_every_process_but_those_with_a_reason() -> None:
    assert {name for name, file in modules().items() if "subprocess.Popen(" in file.read_text("utf-8")} == STARTERS


def test_no_parts_know_each_other(graph: Graph) -> None:
    places: dict[str, set[str]] = defaultdict(set)

    def place(name: str) -> str:
        parts = name.split(".")
        return ".".join(parts[: 3 if parts[1:2] == ["workshop"] else 2])

    for name, tos in graph.items():
        if name not in ENTRIES and not within(name, "kqlib.command"):
            places[place(name)] |= {place(to) for to in tos} - {place(name)}
    assert circles(places) == []


def test_no_modules_know_each_other(graph: Graph) -> None:
    assert circles({name: tos for name, tos in graph.items() if name not in ENTRIES}) == []


def test_a_site_is_imported_with_at_most_thirty_modules_of_ours() -> None:
    program = "import sys; from kqlib import Site; print(sum(name.split('.')[0] == 'kqlib' for name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(ran.stdout) <= 30
