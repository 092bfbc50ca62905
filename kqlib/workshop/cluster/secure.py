"""A locked-down cluster on this machine: TLS and a login on every listener, and rules for who may do what.

In:  a directory. Out: what the nodes' settings need, and each user's client settings.
Users: `deploy` may do everything, as a deployment's account does; `app` reads, writes and commits, and may create nothing.
Authority, certificate and passwords are made anew for each cluster and go with its directory.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.extras import check
from kqlib.kafka.settings import Secret

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = ("broker", "deploy", "app")


@dataclass(frozen=True)
class Security:
    """The keys and passwords of one secure cluster."""

    home: Path
    passwords: dict[str, Secret] = field(repr=False)

    @classmethod
    def make(cls, home: Path) -> Security:
        """New passwords, and in `home` a new authority with a certificate for 127.0.0.1."""
        home.mkdir(parents=True, mode=0o700, exist_ok=True)
        certify(home)
        return cls(home, {user: Secret(secrets.token_urlsafe(18)) for user in USERS})

    def node_properties(self, wires: Iterable[str] = ()) -> dict[str, str]:
        """What server.properties needs. wires: listeners behind a proxy. They have no TLS: the proxy ends that of clients."""
        users = " ".join(f'user_{user}="{password!s}"' for user, password in self.passwords.items())
        login = f'{PLAIN} required username="broker" password="{self.passwords["broker"]!s}" {users};'
        behind = dict.fromkeys(wires, "SASL_PLAINTEXT")
        protocols = {"CLIENT": "SASL_SSL", "CONTROLLER": "SASL_SSL"} | behind
        return {
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": login for name in protocols},
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:broker;User:deploy",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.home / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.home / "ca.pem"),
        }

    def client(self, user: str) -> dict[str, Any]:
        """The login of a user, in librdkafka's words."""
        if user not in self.passwords or user == "broker":
            raise NotAllowed(f"this cluster has no user {user!r}; it has 'deploy' and 'app'")
        login = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": self.passwords[user]}
        return {"security.protocol": "SASL_SSL", "ssl.ca.location": str(self.home / "ca.pem"), **login}


def allow_app(admin: Any) -> None:
    """Give `app` what an application needs: read, write, commit, transactions; nothing that creates, deletes or configures."""
    from confluent_kafka import admin as ka

    on = {
        "TOPIC": ("READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"),
        "GROUP": ("READ", "DESCRIBE", "DESCRIBE_CONFIGS"),
        "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE"),
    }
    everything, allow = ka.ResourcePatternType.LITERAL, ka.AclPermissionType.ALLOW
    rules = [
        ka.AclBinding(ka.ResourceType[kind], "*", everything, "User:app", "*", ka.AclOperation[operation], allow)
        for kind, operations in on.items()
        for operation in operations
    ]
    for done in admin.create_acls(rules, request_timeout=10).values():
        done.result(10)


def certify(home: Path, **days: float) -> None:
    """ca.pem, and broker.pem with its key: valid for 127.0.0.1 and localhost, for a year.

    days: other files instead of broker.pem, and for how long each is valid; below 0 it has expired.
    """
    check("lab", "secure=True", "cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    def signed(
        common: str, key: Any, issuer: Any, by: Any, days: float, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(issuer or name, name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(
            now + datetime.timedelta(days=days)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, isinstance(extension, x509.BasicConstraints | x509.KeyUsage))
        return builder.sign(by, SHA256())

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    signs = {"key_cert_sign": True, "crl_sign": True, "encipher_only": False, "decipher_only": False}
    # since Python 3.13 a client refuses a chain without the identifiers and the usage
    whose = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    may = x509.BasicConstraints(ca=True, path_length=0), x509.KeyUsage(*[False] * 5, **signs)
    ca = signed("kqlib lab authority", ca_key, None, ca_key, 365, *may, whose)
    by_whom = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(whose)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")])
    (home / "ca.pem").write_bytes(ca.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for name, valid in (days or {"broker": 365}).items():
        certificate = signed("127.0.0.1", key, ca.subject, ca_key, valid, names, by_whom)
        both = home / f"{name}.pem"
        both.touch(mode=0o600)
        both.write_bytes(secret + certificate.public_bytes(Encoding.PEM))
