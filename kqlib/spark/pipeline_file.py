"""A stream as one file, for `kq pipeline run pipeline.toml`.

    stream = "standings"              # or "quarantine", which only puts rows aside
    source = "games"                  # the topic that is read
    target = "table"                  # the topic for what comes out
    quarantine = "games.bad"          # from here on each line may be left out
    late = "games.late"
    lateness = 3600                   # seconds after which a row is late
    parquet = "standings"             # a folder that gets the standings as well; relative to this file
    home = "standings-home"           # checkpoint and state; relative to this file
    registry = "http://schemas:8081"
    subject = "games-value"           # the schemas that wrote the values; the latest one reads them
    schema = "reader.avsc"            # or this one reads them: a file (relative to this one), or the latest of another subject
    group = "standings"               # shows the lag

    [rules]
    "two teams" = "home <> away"
    points = {that = "points >= 0", then = "stop", above = 0.01}
    "once an hour" = {that = "number", within = 3600}

In:  the path. Out: `PipelineFile`; `NotAllowed` names what is wrong.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.spark.rules import Rule, Rules
from kqlib.spark.table import LATE
from kqlib.text import near

STREAMS = ("standings", "quarantine")
AVSC = ".avsc"  # a schema with this end is a file; others are subjects


@dataclass(frozen=True)
class PipelineFile:
    """What the file says."""

    stream: str
    source: str
    target: str
    quarantine: str | None = None
    late: str | None = None
    lateness: float = LATE
    parquet: str | None = None
    home: str | None = None
    registry: str | None = None
    subject: str | None = None
    schema: str | None = None
    group: str | None = None
    rules: tuple[Rule, ...] = field(default=())


def read(path: str) -> PipelineFile:
    """The file at this path, checked."""
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotAllowed(f"{path} cannot be read: {error}") from None
    known = [each.name for each in fields(PipelineFile)]
    for name, value in found.items():
        if name not in known:
            raise NotAllowed(f"{path}: there is no setting '{name}'{near(name, known)}")
        kind: Any = {"lateness": (int, float), "rules": dict}.get(name, str)
        wrong = not isinstance(value, kind) or isinstance(value, bool) or value == ""
        if wrong or (name == "lateness" and not value >= 0):  # nan
            raise NotAllowed(f"{path}: {name} cannot be {value!r}")
    for name in ("stream", "source", "target"):
        if name not in found:
            raise NotAllowed(f"{path}: {name} is missing")
    if found["stream"] not in STREAMS:
        raise NotAllowed(f"{path}: stream is {' or '.join(STREAMS)}, not {found['stream']!r}")
    if found["stream"] == "quarantine" and (extra := {"quarantine", "late", "lateness", "parquet"} & set(found)):
        raise NotAllowed(f"{path}: {min(extra)} is a setting of standings; a quarantine has only its target")
    for name in ("home", "parquet", "schema"):
        value = found.get(name, "://")
        if "://" not in value and (name != "schema" or value.endswith(AVSC)):
            found[name] = str(Path(path).absolute().parent / Path(value).expanduser())
    rules = tuple(_rule(path, *each) for each in found.get("rules", {}).items())
    try:
        Rules(rules, "")
    except NotAllowed as error:
        raise NotAllowed(f"{path}: {error}") from None
    return PipelineFile(**found | {"rules": rules})


def _rule(path: str, name: str, value: Any) -> Rule:
    settings = {"that": None} | value if isinstance(value, dict) else {"that": value}
    known = [each.name for each in fields(Rule)][1:]
    try:
        if extra := [each for each in settings if each not in known]:
            raise NotAllowed(f"there is no setting '{extra[0]}'{near(extra[0], known)}")
        return Rule(name, **settings)
    except NotAllowed as error:
        raise NotAllowed(f"{path}: rule '{name}': {error}") from None
