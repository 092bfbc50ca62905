"""A session in a process of its own: it prints nothing, and it leaves no process and no file, however its Python ends."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.spark import session

SOON = 10  # seconds; on a quiet machine it takes one
PATIENCE = 180

Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def begin(python: Begin) -> Begin:
    """A Python that can have a session."""
    return partial(python, "import sys", "from kqlib.spark import close, session")


@pytest.mark.nightly  # by day notebook 12 is compared: what it prints, and what it leaves behind
def test_a_session_is_quiet_and_leaves_nothing_when_it_is_stopped(begin: Begin, tmp_path: Path, marked: Any) -> None:
    process = begin(
        "spark = session()",
        "assert session() is spark",
        "print(spark.range(10).count(), spark.range(4).rdd.map(lambda row: row[0] * 2).sum(), flush=True)",
        "try:",
        "    spark.sql('select nonsense')",
        "except Exception as error:",
        "    print(type(error).__name__)",
        "spark.stop()",
        "print('stopped', flush=True)",
        "sys.stdin.readline()",
    )
    assert process.stdout
    assert [process.stdout.readline() for _ in range(3)] == ["10 12\n", "AnalysisException\n", "stopped\n"]
    assert not marked.alive("SparkSubmit")
    assert not list(tmp_path.iterdir())  # no directory, and none beside it: spark-warehouse, metastore_db, derby.log
    assert process.communicate("\n", PATIENCE) == ("", "")


@pytest.mark.nightly  # by day notebook 12 has a driver that is killed in a query
@pytest.mark.parametrize("end", ["SIGTERM in a query", "its last line"])
def test_no_jvm_and_no_file_of_a_second_session_outlives_its_python(
    begin: Begin, tmp_path: Path, marked: Any, within: Any, end: str
) -> None:
    process = begin(
        "spark = session()",
        "spark.stop()",
        "again = session(config={'spark.sql.shuffle.partitions': 3})",
        "assert again is not spark",
        "print(again.conf.get('spark.sql.shuffle.partitions'), again.range(3).count(), flush=True)",
        "sys.stdin.readline()" if end == "its last line" else "again.range(10**12).selectExpr('sum(id % 7)').collect()",
    )
    assert process.stdout and process.stdout.readline() == "3 3\n"
    assert len(marked.alive("SparkSubmit")) == len(list(tmp_path.glob("kqlib-spark-*"))) == 1
    if end != "its last line":
        process.terminate()
    process.communicate("\n", PATIENCE)
    within(SOON, lambda: nothing_left(marked, tmp_path), end)


def nothing_left(marked: Any, home: Path) -> bool:
    """No process and no file of a session."""
    return not (marked.alive("java") or marked.alive("reaper.py") or list(home.iterdir()))


def test_the_settings_of_a_running_session_stay(spark: Any) -> None:
    with pytest.raises(
        NotAllowed, match=r"a session runs already, with another spark\.sql\.shuffle\.partitions; spark"
    ):
        session(config={"spark.sql.shuffle.partitions": 5})


def test_the_quick_compiler_alone_has_as_much_memory_for_code_as_both(spark: Any) -> None:
    pools = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    code = [pool.getUsage() for pool in pools if pool.getName().startswith("Code")]  # it may be in three parts
    print(f"{sum(each.getUsed() for each in code) / 2**20:.1f} MB of compiled code")
    assert sum(each.getMax() for each in code) == pytest.approx(240 * 2**20, rel=0.01)  # 48 MB without a word


def test_a_python_killed_while_its_session_starts_leaves_nothing(
    begin: Begin, tmp_path: Path, marked: Any, within: Any
) -> None:
    process = begin("session()")
    within(PATIENCE, lambda: marked.alive("SparkSubmit"))
    process.kill()
    process.wait(PATIENCE)
    within(SOON, lambda: nothing_left(marked, tmp_path))


def test_a_start_that_fails_says_what_the_jvm_printed(begin: Begin, tmp_path: Path) -> None:
    process = begin(
        "try:",
        "    session(config={'spark.driver.memory': '12parsecs'})",
        "except Exception as error:",
        "    print(error)",
    )
    out, error = process.communicate("", PATIENCE)
    assert "Spark ended at its start (exit 1)" in out
    assert "Invalid maximum heap size" in out
    assert error == ""
    assert not list(tmp_path.iterdir())
