"""Make docs/crash.md: each worker of this directory under `kq crash`, and what came of it.

In:  names of workers; without names all of them. Out: docs/crash.json with the figures, docs/crash.md with the table.
Each foreign library gets an environment of its own in the cache, from its file in requirements/.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from kqlib.runtime import places
from tests.nightly.pythons import interpreter

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
PYTHON = {"pyrallel-consumer": "3.12"}  # for the others the Python of kqlib
# They run in kqlib's own environment; kafka-streams is in jars.lock.
OURS = ("kqlib", "confluent-kafka", "pyspark", "kafka-streams")
SAMPLE, SEED = 100, 7
# Points, where a run takes half a minute and there are thousands
SAMPLED = {"kqlib_virtual": 12}
# Seconds, where a first record or a batch takes longer than 3
QUIET = {"share_consumer": 10, "kqlib_share": 10, "spark_stream": 60}
ORDER = (
    *("at_most_once", "confluent_auto", "at_least_once", "confluent_store", "transactions"),
    *("kafka_python_auto", "kafka_python_manual", "aiokafka_manual", "aiokafka_transactions"),
    *("faststream_default", "faststream_ack", "pyrallel", "streams_at_least_once", "streams_exactly_once"),
    *("spark_stream", "share_consumer"),
    *("kqlib_work", "kqlib_step", "kqlib_virtual", "kqlib_share"),
)
ABOUT = """# What workers lose when they are killed

Each worker does the same: it reads a topic, works for 1 ms on each of {items} items, and writes a result to another topic.
`kq crash` runs it once for each point. It kills the process before or after one request to Kafka, starts it again, and counts
the items without a result (lost), with more than one (doubled), and the keys whose items came out of order.
The figures count runs. Seconds to recover: the median from the death to the next result that is sent.
`kq crash` leaves the group in the dead process's name, so this time holds no session timeout. There is one
broker, and it does not fail.

Made by `make crash-page`; one worker again: `make crash-page ONLY=NAME`. The first figure counts the points at which
the worker was killed. A point is missing if its run did not reach it: a worker does not send as many requests in each run. Of
kqlib_virtual only a sample was tried, drawn with seed {seed}. A point that is missing may lose or double an item.
Auto-commit every 5 s commits once in so short a run, at its end, so a loss between two commits cannot show in these figures.
Each worker and its promise was read once more against the documentation in the last table, by a reader who did not write it.
*In the package* means the docstrings of the version that is measured; another version is named where it was read. If a worker is
still written wrongly, its figures are our fault.
The figures of one run are in [crash.json](crash.json). The workers are in `examples/crash`.

| worker | points | lost | doubled | out of order | s to recover |
|---|---|---|---|---|---|
"""
SEEN = """
## What the documentation promises, and what was seen

| worker | promised | seen |
|---|---|---|
"""
FORMS = """
## The workers

| worker | library | form |
|---|---|---|
"""
READ = """
## The documentation that was read

| library | workers | documentation |
|---|---|---|
"""
# Add a worker only when a person who did not write it has read it against these pages.
DOCUMENTATION = {
    "at_most_once, at_least_once": 'Python Client for Apache Kafka, "Delivery guarantees" (in a third party\'s copy); '
    "`Consumer.commit` in the package",
    "confluent_auto": 'Introduction to librdkafka 2.15, "Auto offset commit", "At-least-once processing", "Termination"',
    "confluent_store": 'Introduction to librdkafka 2.15, "At-least-once processing"; `store_offsets` in the package',
    "transactions": "the example eos_transactions.py (2.15); `Producer.send_offsets_to_transaction` in the package",
    "kafka_python_auto, kafka_python_manual": "High-Level Clients (3.1.0.dev); `KafkaConsumer` in the package",
    "aiokafka_manual": 'Consumer client, "Manual vs automatic committing"; Manual commit',
    "aiokafka_transactions": 'Producer client, "Transactional producer"; Transactional Consume-Process-Produce',
    "faststream_default, faststream_ack": "Kafka, Consuming Acknowledgements (0.7.4); `AckPolicy` in the package",
    "pyrallel": 'README, "Usage" and "Rebalance state preservation"; the example async_simple.py',
    "streams_at_least_once, streams_exactly_once": 'Core Concepts, "Processing Guarantees" (4.3); Writing a Streams '
    'Application (4.3); Configuring a Streams Application, "processing.guarantee" (4.x); Design, "Message Delivery Semantics"',
    "spark_stream": 'Structured Streaming + Kafka Integration Guide, "Writing Data to Kafka"; '
    "Recovering from Failures with Checkpointing (Spark 4)",
    "share_consumer": "KIP-932 share consumer guide (2.15); `ShareConsumer` in the package; KafkaShareConsumer (4.3)",
    "kqlib_work": "`Queue.work` in the package; notebook 08",
    "kqlib_step": '`Queue.step` in the package; notebook 06, "All or nothing"',
    "kqlib_virtual": "`virtual.Client.queue` in the package; notebook 10",
    "kqlib_share": "`ShareQueue` in the package; notebook 11",
}


def facts(name: str) -> tuple[str, str, str]:
    """A worker's library with its version, its form, and what the library promises: all from the file's head."""
    head = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))) or ""
    library, _, form = head.splitlines()[0].partition(": ")
    promises = next(line for line in head.splitlines() if line.startswith("Promises: "))
    return library, form, promises.removeprefix("Promises: ")


def requirements(library: str) -> Path:
    """The pins of a library's environment."""
    return HERE / "requirements" / f"{library.partition('==')[0]}.txt"


def python(library: str) -> str:
    """The interpreter that has a library. Made on first use, by uv, from its pinned requirements."""
    name = library.partition("==")[0]
    if name in OURS:
        return sys.executable
    home = places.cache() / "crash" / library
    if not (home / "ready").exists():
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "uv"
        other = PYTHON.get(name)
        own = interpreter(other) if other else sys.executable
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", own or other, home], check=True)
        where = ["--python", home / "bin" / "python", "--requirement", requirements(library)]
        subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", *where], check=True)
        (home / "ready").touch()
    return str(home / "bin" / "python")


def measure(name: str) -> dict[str, Any]:
    """One worker under `kq crash`, in figures. A library that cannot be installed or run is named with the reason."""
    library, *_ = facts(name)
    try:
        worker = [python(library), str(HERE / f"{name}.py")]
    except (OSError, subprocess.CalledProcessError) as error:
        return {"library": library, "failed": f"it could not be installed: {error}"}
    options = f"--json --sample {SAMPLED.get(name, SAMPLE)} --seed {SEED} --quiet {QUIET.get(name, 3)}"
    command = [sys.executable, "-m", "kqlib", "crash", *options.split(), "--", *worker]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        why = done.stderr.strip() or f"kq crash ended with status {done.returncode}"
        return {"library": library, "failed": why.splitlines()[0]}
    found = json.loads(done.stdout)
    runs = found["runs"]
    times = [run["recovery"] for run in runs if run["recovery"] is not None]
    return {
        "library": library,
        "items": found["items"],
        "points": len(runs),
        "left_out": found["left_out"],
        **{kind: sum(bool(run[kind]) for run in runs) for kind in ("lost", "doubled", "order", "failed")},
        "not_reached": sum(not run["reached"] for run in runs),
        "recovery": round(statistics.median(times), 1) if times else None,
        "bad": {run["points"]: kinds for run in runs if (kinds := [k for k in ("lost", "doubled", "order") if run[k]])},
        "seconds": found["seconds"],
    }


def seen(found: dict[str, Any]) -> str:
    """What happened, in words."""
    words = [f"{kind} at {', '.join(points)}" for kind in ("lost", "doubled", "order") if (points := _at(found, kind))]
    words += [f"{found['not_reached']} points not reached"] * bool(found["not_reached"])
    words += [f"{found['failed']} runs did not end well"] * bool(found["failed"])
    return "; ".join(words) or "one result for each item"


def _at(found: dict[str, Any], kind: str) -> list[str]:
    """The first of the kinds of points at which it happened."""
    named = [
        f"{api} {when}" for api, _, when in (each.split(":") for each, kinds in found["bad"].items() if kind in kinds)
    ]
    return list(dict.fromkeys(named))


def page(figures: dict[str, Any]) -> str:
    """The page from the figures."""
    rows, kept, forms = [], [], []
    for name in ORDER:
        found = figures.get(name, {"failed": "not run yet"})
        library, form, promises = facts(name)
        forms.append(f"| [{name}](../examples/crash/{name}.py) | {library} | {form} |")
        if isinstance(found["failed"], str):
            rows.append(f"| {name} | – | – | – | – | – |")
            kept.append(f"| {name} | {promises} | not measured: {found['failed']} |")
            continue
        points = f"{found['points'] - found['not_reached']} of {found['points'] + found['left_out']}"
        times = "–" if found["recovery"] is None else found["recovery"]
        counts = " | ".join(str(found[kind]) for kind in ("lost", "doubled", "order"))
        rows.append(f"| {name} | {points} | {counts} | {times} |")
        kept.append(f"| {name} | {promises} | {seen(found)} |")
    read = [f"| {facts(names.split(', ')[0])[0]} | {names} | {pages} |" for names, pages in DOCUMENTATION.items()]
    tables = (rows, SEEN, kept, FORMS, forms, READ, read)
    text = ["\n".join(each) + "\n" if isinstance(each, list) else each for each in tables]
    return ABOUT.format(items=4, seed=SEED) + "".join(text)


def main(names: list[str]) -> None:
    """Measure these, write the page after each."""
    stored = DOCS / "crash.json"
    for name in names or ORDER:
        figures = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
        figures[name] = measure(name)
        print(name, figures[name], flush=True)
        stored.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        (DOCS / "crash.md").write_text(page(figures), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
