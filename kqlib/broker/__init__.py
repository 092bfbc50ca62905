"""A real Kafka on this machine, or one's own by its address.

`Cluster` starts one (java, jars, node, reaper, secure); `connect` uses what KQ_BOOTSTRAP names, else starts one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kqlib.broker import settings
from kqlib.broker.cluster import Broker, Cluster
from kqlib.broker.kafka import Kafka, reach, words
from kqlib.errors import BadConfig

__all__ = ["Broker", "Cluster", "Kafka", "connect", "words"]


def connect() -> Kafka:
    """The cluster that KQ_BOOTSTRAP names (TLS and SASL from the file KQ_KAFKA_CONFIG), else a new embedded one."""
    return named() or Cluster()


def own() -> dict[str, Any]:
    """The client's settings from the file that KQ_KAFKA_CONFIG names."""
    file = _file()
    return settings.read(file) if file else {}


def named() -> Kafka | None:
    """The cluster that the environment names, reached; None when it names none."""
    found, file = own(), _file()
    address, bootstrap = found.pop("bootstrap.servers", None), os.environ.get("KQ_BOOTSTRAP")
    if not (bootstrap or address):
        return None
    settings.check_address(
        bootstrap or address, "KQ_BOOTSTRAP" if bootstrap else f"{file and file.name}, bootstrap.servers"
    )
    try:
        return reach(bootstrap or address, found)
    except BadConfig as error:
        raise settings.located(error, file) if file else error from None


def _file() -> Path | None:
    file = os.environ.get("KQ_KAFKA_CONFIG")
    return Path(file).expanduser() if file else None
