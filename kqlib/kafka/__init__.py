"""A Kafka cluster by its address: its clients' settings (`settings`), its admin and topics (`cluster`), its records (`reading`).

`connect` uses the cluster that KQ_BOOTSTRAP or the file of KQ_KAFKA_CONFIG names.
Else it starts an embedded one, which is the workshop's (`workshop/cluster`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kqlib.errors import BadConfig
from kqlib.kafka import settings
from kqlib.kafka.cluster import Kafka, reach
from kqlib.text import words

__all__ = ["Kafka", "connect", "words"]


def connect() -> Kafka:
    """The cluster that KQ_BOOTSTRAP names (TLS and SASL from the file KQ_KAFKA_CONFIG), else a new embedded one."""
    if there := named():
        return there
    from kqlib.workshop.cluster import Cluster

    return Cluster()


def own() -> dict[str, Any]:
    """The client's settings from the file that KQ_KAFKA_CONFIG names."""
    file = _file()
    return settings.read(file) if file else {}


def named() -> Kafka | None:
    """The cluster that the environment names, asked once; None when it names none."""
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
