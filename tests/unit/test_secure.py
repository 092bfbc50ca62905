"""The certificates of a lab's secure cluster. No broker."""

from __future__ import annotations

import ssl
from pathlib import Path

from kqlib.workshop.cluster.secure import certify


def test_a_client_that_checks_a_chain_strictly_takes_a_lab_s_certificate(tmp_path: Path) -> None:
    """As Python's own does since 3.13."""
    certify(tmp_path)
    here, there = ssl.create_default_context(cafile=str(tmp_path / "ca.pem")), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    here.verify_flags |= ssl.VERIFY_X509_STRICT
    there.load_cert_chain(tmp_path / "broker.pem")
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = (
        here.wrap_bio(one, other, server_hostname="127.0.0.1"),
        there.wrap_bio(other, one, server_side=True),
    )
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert client.getpeercert()
