"""ARCHITECTURE.md says what is true of the code: its tree, its links, the tests that it names."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_module_is_in_the_architectures_tree_and_nothing_else() -> None:
    """Each in its own part of the tree: other directories have a cluster.py and a __init__.py as well."""
    tree = (ROOT / "ARCHITECTURE.md").read_text().split("\nkqlib/\n")[1].split("\n```")[0]
    assert listed(tree, 2) == entries(ROOT / "kqlib")
    for name in ("kafka", "runtime", "workshop"):
        part = re.split(r"\n  (?=\S)", tree.split(f"\n  {name}/")[1])[0]
        modules = {entry for entry in entries(ROOT / "kqlib" / name) if entry.endswith((".py", "/"))}
        assert listed(part, 4) == modules - {"__init__.py"}, name


def entries(directory: Path) -> set[str]:
    """What is in a directory, as the tree writes it."""
    found = (path for path in directory.iterdir() if path.name != "__pycache__")
    return {path.name + "/" * path.is_dir() for path in found}


def listed(tree: str, indent: int) -> set[str]:
    """The first words of the lines with this indent."""
    return set(re.findall(rf"^ {{{indent}}}(\S+)", tree, re.MULTILINE))


def test_the_architecture_has_at_most_2500_words() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) <= 2_500


def test_every_function_that_the_architecture_links_is_in_that_file() -> None:
    links = re.findall(r"\[`([\w.]+)`\]\(([^)]+\.py)\)", (ROOT / "ARCHITECTURE.md").read_text())
    assert len(links) > 20
    for name, file in links:
        last = name.rpartition(".")[2]
        assert re.search(rf"^ *(?:def|class) {last}\b", (ROOT / file).read_text(), re.MULTILINE), (name, file)


def test_every_test_that_the_architecture_names_is_in_a_file_that_it_links() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    linked = "".join((ROOT / file).read_text() for file in re.findall(r"\]\((tests/[^)]+)\)", text))
    named = re.findall(r"`(test_\w+)`", text)
    assert len(named) > 5
    assert [test for test in named if f"def {test}(" not in linked] == []
