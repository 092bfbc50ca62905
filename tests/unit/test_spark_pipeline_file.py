"""pipeline.toml: what it may say, and that each mistake is named. No broker, no Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kqlib.errors import NotAllowed
from kqlib.spark import pipeline_file
from kqlib.spark.pipeline_file import PipelineFile
from kqlib.spark.rules import Rule

LEAST = 'stream = "standings"\nsource = "games"\ntarget = "table"\n'


def test_the_file_of_the_docs_is_read(tmp_path: Path) -> None:
    text = pipeline_file.__doc__ or ""
    path = tmp_path / "pipeline.toml"
    path.write_text("\n".join(line[4:] for line in text.splitlines() if line.startswith("    ")))
    assert pipeline_file.read(str(path)) == PipelineFile(
        "standings",
        "games",
        "table",
        "games.bad",
        "games.late",
        3600,
        str(tmp_path / "standings"),
        str(tmp_path / "standings-home"),
        "http://schemas:8081",
        "games-value",
        str(tmp_path / "reader.avsc"),
        "standings",
        (
            Rule("two teams", "home <> away"),
            Rule("points", "points >= 0", "stop", 0.01),
            Rule("once an hour", "number", within=3600),
        ),
    )
    path.write_text(LEAST + 'home = "hdfs://host/home"\nparquet = "s3a://table"\nschema = "reader"')
    elsewhere = PipelineFile(
        "standings", "games", "table", home="hdfs://host/home", parquet="s3a://table", schema="reader"
    )
    assert pipeline_file.read(str(path)) == elsewhere
    path.write_text(LEAST + 'parquet = "~/table"')
    assert pipeline_file.read(str(path)).parquet == str(Path.home() / "table")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stream = ", "cannot be read: Invalid value"),
        (LEAST + 'sorce = "x"', "there is no setting 'sorce'; did you mean source?"),
        (LEAST + 'lateness = "1 h"', "lateness cannot be '1 h'"),
        (LEAST + "late = true", "late cannot be True"),
        (LEAST + 'home = ""', "home cannot be ''"),
        ('stream = "standings"\nsource = "games"', "target is missing"),
        (LEAST.replace("standings", "table"), "stream is standings or quarantine, not 'table'"),
        (LEAST.replace("standings", "quarantine") + 'late = "x"', "late is a setting of standings"),
        (LEAST.replace("standings", "quarantine") + 'parquet = "x"', "parquet is a setting of standings"),
        (LEAST + "schema = 3", "schema cannot be 3"),
        (LEAST + 'shema = "x"', "there is no setting 'shema'; did you mean schema?"),
        (LEAST + "rules = {a = 3}", "rule 'a': a rule has a name and a condition in SQL, not 'a' and 3"),
        (LEAST + "lateness = -1", "lateness cannot be -1"),
        (LEAST + "lateness = nan", "lateness cannot be nan"),
        (LEAST + 'rules = {a = {that = "b", than = "stop"}}', "rule 'a': there is no setting 'than'; did you mean"),
        (LEAST + 'rules = {a = {that = "b", name = "c"}}', "rule 'a': there is no setting 'name'"),
        (
            LEAST + 'rules = {a = {then = "stop"}}',
            "rule 'a': a rule has a name and a condition in SQL, not 'a' and None",
        ),
        (LEAST + 'rules = {a = {that = "b", above = 0.1}}', "rule 'a': above goes with then = 'stop'"),
        (
            LEAST + "\n".join(["[rules]", *(f'{n} = {{that = "b", within = 9}}' for n in "ac")]),
            "one rule at most has `within`",
        ),
    ],
)
def test_a_mistake_in_the_file_is_named(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(text)
    with pytest.raises(NotAllowed, match=f"{re.escape(str(path))}.*{says}"):
        pipeline_file.read(str(path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match=r"no\.toml cannot be read"):
        pipeline_file.read(str(tmp_path / "no.toml"))
