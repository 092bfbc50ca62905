"""Passwords and certificates that can be changed on a running cluster. In: mechanisms. Out: a cluster; `password` changes one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from kqlib.workshop.cluster import Cluster, secure
from tests.patience import WAIT

SHA_512, SHA_256 = "SCRAM-SHA-512", "SCRAM-SHA-256"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@contextmanager
def changeable(*mechanisms: str, **settings: str) -> Iterator[Cluster]:
    """Two brokers, which talk to each other through TLS and a login too. Beside their certificate is one that can follow it."""
    config = {f"listener.name.client.{each.lower()}.sasl.jaas.config": MODULE for each in mechanisms}
    config["listener.name.client.sasl.enabled.mechanisms"] = ",".join(("PLAIN", *mechanisms))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secure, "certify", partial(secure.certify, broker=365, renewed=365))
        made = Cluster(2, secure=True, config=config | settings)
    with made:
        yield made


def password(cluster: Cluster, mechanism: str, new: str) -> None:
    """From now on `app` has this password under this mechanism."""
    info = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], 4096)
    change = UserScramCredentialUpsertion("app", info, new.encode())
    cluster.admin.alter_user_scram_credentials([change])["app"].result(WAIT)
