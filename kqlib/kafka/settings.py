"""The settings of a Kafka client: kqlib's defaults, your file (KQ_KAFKA_CONFIG), and the same words for Java.

In:  a properties file in librdkafka's or Java's words. Out: dicts for confluent_kafka (`client`), for Java's tools (`to_java`) and
for Spark's Kafka clients (`for_spark`).
A secret is a `Secret`: the clients read it as the string it is, a repr, and so a notebook's output, shows only that there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kqlib.errors import BadConfig

# What kqlib's clients start from. Each line replaces a default that loses data, hides a mistake or surprises.
DEFAULTS: dict[str, Any] = {
    "partitioner": "murmur2_random",  # librdkafka's own is CRC32: Java, Spark and others would look elsewhere for a key
    "allow.auto.create.topics": False,  # a consumer's typo must not become a topic
    "enable.auto.commit": False,  # it commits what was read, not what was done
    "auto.offset.reset": "earliest",  # the default, latest, skips what was put before the first start
    "group.protocol": "consumer",  # KIP-848: joins in 0.2 s where the classic protocol takes 3 s
    "topic.metadata.refresh.interval.ms": 10_000,  # a producer meets new partitions after 10 s, not after 300
    "socket.timeout.ms": 10_000,  # a broker that is connected and silent is left after 10 s, not after 60
    "log_level": 0,  # errors reach the caller; librdkafka's own lines would land in a notebook's output
}
TRANSACTION = 60_000  # librdkafka's transaction.timeout.ms
SECRET = re.compile(r"password|passphrase|secret|jaas|token|key\.pem|keystore\.key|credential", re.IGNORECASE)
NOT_DOTTED = {"log_level", "logger", "on_commit", "on_delivery"}
# Settings of a consumer that under KIP-848 are settings of its group.
CLASSIC = {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
JAAS = re.compile(r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
JAVA_ONLY = ("ssl.truststore.", "ssl.keystore.", "sasl.jaas.config")
PEM = {  # certificates and keys written into the file itself
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
FILES = {"ssl.certificate.location": "ssl.certificate.pem", "ssl.key.location": "ssl.key.pem"}
SAME_FOR_JAVA = ("security.protocol", "sasl.kerberos.service.name", "ssl.endpoint.identification.algorithm")
TLS_AND_LOGIN = {
    *(*SAME_FOR_JAVA, *FILES, *PEM.values(), "ssl.ca.location", "ssl.key.password"),
    *("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"),
}


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


# librdkafka's name: Java's name. Of two names for one setting the later one counts, which is Java's own.
BOTH = {
    "socket.timeout.ms": "request.timeout.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    **_same("client.id", "client.dns.lookup", "connections.max.idle.ms", "enable.metrics.push", "metadata.max.age.ms"),
    **_same("metadata.recovery.strategy", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms"),
    **_same("retry.backoff.max.ms", "retry.backoff.ms", "socket.connection.setup.timeout.ms"),
}
READER = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    **_same("allow.auto.create.topics", "check.crcs", "client.rack", "fetch.max.bytes", "fetch.min.bytes", "group.id"),
    **_same("heartbeat.interval.ms", "max.partition.fetch.bytes", "max.poll.interval.ms", "session.timeout.ms"),
}
WRITER = {
    "compression.codec": "compression.type",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    **_same("acks", "batch.size", "compression.type", "delivery.timeout.ms", "enable.idempotence", "linger.ms"),
    **_same("max.in.flight.requests.per.connection", "retries", "transaction.timeout.ms"),
}
# What Spark's Kafka clients do in any case.
ALREADY = {
    ("enable.auto.commit", "false"),
    ("enable.ssl.certificate.verification", "true"),
    ("isolation.level", "read_committed"),
    ("partitioner", "murmur2"),
    ("partitioner", "murmur2_random"),
}


class Secret(str):
    """A string whose repr does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def hidden(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings, secrets wrapped."""
    return {
        key: Secret(value) if isinstance(value, str) and SECRET.search(key) else value for key, value in values.items()
    }


def client(bootstrap: str, own: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The dict for a confluent_kafka client. `extra` overrules; its names may be written with _ for the dots."""
    named = {
        key if key in NOT_DOTTED or key.endswith("_cb") else key.replace("_", "."): value
        for key, value in extra.items()
    }
    merged = {"bootstrap.servers": bootstrap, **DEFAULTS, **own, **named}
    if CLASSIC & merged.keys() and "group.protocol" not in {**own, **named}:
        merged["group.protocol"] = "classic"  # under KIP-848 a client that sets one of these is refused
    # Of a transaction's time one half is for a coordinator that is silent, the other half for the one that takes its place.
    if "transactional.id" in merged:
        longest = int(merged.get("transaction.timeout.ms", TRANSACTION)) // 2
        merged["socket.timeout.ms"] = max(900, min(int(merged["socket.timeout.ms"]), longest))
    return hidden(merged)


def read(path: Path) -> dict[str, Any]:
    """A client properties file as librdkafka's settings; Java's words for PEM trust and for a JAAS login are understood."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        because = getattr(error, "strerror", None) or type(error).__name__
        why = f"this file of client settings (--config or KQ_KAFKA_CONFIG) cannot be read ({because})"
        raise BadConfig(source=str(path), why=why) from None
    values: dict[str, str] = {}
    for number, line in _lines(text):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise BadConfig(
                source=f"{path.name}, line {number}",
                why="not of the form name=value (the line is not shown: it may hold a secret)",
            )
        values[key.strip()] = value.strip()
    return hidden(_from_java(values, path.name))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not empty and no comments, numbered. One of Java's own settings goes on after a backslash at its end."""
    begun = ""
    for number, line in enumerate(text.split("\n"), 1):
        whole = begun + line.strip()
        goes_on = whole.startswith(JAVA_ONLY) and (len(whole) - len(whole.rstrip("\\"))) % 2
        begun = whole[:-1] if goes_on else ""
        if whole and whole[0] not in "#!" and not goes_on:
            yield number, whole


def located(error: BadConfig, path: Path) -> BadConfig:
    """A client's complaint about a setting, with the line of the file that holds it. What may be a secret is not shown."""
    why, source = str(error.facts["why"]).removeprefix("Failed to create admin client: ").strip(), path.name
    lines = list(_lines(path.read_text(encoding="utf-8-sig")))
    for number, line in reversed(lines):  # of a name twice the last one counts
        name, _, value = (part.strip() for part in line.partition("="))
        if any(re.search(rf"(?<![\w.]){re.escape(each)}(?![\w.])", why) for each in _called(name)):
            source = f"{path.name}, line {number}"
            if name.endswith(".location") and not Path(value).exists():
                why = "there is no such file"
            if not (why.startswith("No such configuration") or SECRET.search(name)):  # a slip in a secret's name
                why = f"{name}={value}: {why}"
            break
    return BadConfig(source=source, why=f"{why}. Nothing was done; correct the file")


def _called(name: str) -> set[str]:
    """The names by which librdkafka may complain about this one."""
    stores = {"ssl.truststore.location": "ssl.ca.location", "ssl.keystore.location": "ssl.certificate.location"}
    return {
        name,
        stores.get(name, name),
        *(theirs for theirs, java in {**BOTH, **READER, **WRITER}.items() if java == name),
    }


def check_address(bootstrap: str, source: str) -> None:
    """`BadConfig` for a port that cannot be one. Nothing is connected."""
    for address in bootstrap.split(","):
        host, colon, port = address.strip().rpartition("//")[2].rpartition(":")
        plain = ":" not in host or host.startswith("[")  # else it is an IPv6 address without a port
        if colon and plain and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise BadConfig(
                source=source, why=f"{address.strip()!r} has no port from 1 to 65535 at its end. Nothing was done"
            )


def _unescaped(value: str) -> str:
    """A value of a Java properties file without that file's escapes (a JAAS login has its own below them)."""
    return (
        re.sub(r"\\u[0-9a-fA-F]{4}|\\.", _character, value)
        .encode("utf-16", "surrogatepass")
        .decode("utf-16", "replace")
    )


def _character(escape: re.Match[str]) -> str:
    word = escape[0][1:]
    return chr(int(word[1:], 16)) if len(word) == 5 else {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(word, word)


def _from_java(values: dict[str, str], source: str) -> dict[str, Any]:
    """Translate what only Java's clients know into librdkafka's words."""
    own: dict[str, Any] = {key: value for key, value in values.items() if not key.startswith(JAVA_ONLY)}
    values = {key: _unescaped(value) if key.startswith(JAVA_ONLY) else value for key, value in values.items()}
    if "sasl.jaas.config" in values:
        login = {
            name: re.sub(r"\\(.)", r"\1", double or single) or bare
            for name, double, single, bare in JAAS.findall(values["sasl.jaas.config"])
        }
        if set(login) != {"username", "password"}:
            raise BadConfig(
                source=source, why="sasl.jaas.config has no username and password; use sasl.username and sasl.password"
            )
        own |= {f"sasl.{name}": value for name, value in login.items()}
    for store, ours in (("ssl.truststore", "ssl.ca"), ("ssl.keystore", "ssl.certificate")):
        if f"{store}.location" in values:
            if values.get(f"{store}.type", "JKS").upper() != "PEM":
                raise BadConfig(
                    source=source, why=f"{store}.location is a Java keystore; export it as PEM and set {ours}.location"
                )
            own[f"{ours}.location"] = values[f"{store}.location"]
            if store == "ssl.keystore":
                own["ssl.key.location"] = values[f"{store}.location"]
    own |= {ours: values[theirs] for theirs, ours in PEM.items() if theirs in values}
    if values.get("ssl.endpoint.identification.algorithm") == "":
        own["ssl.endpoint.identification.algorithm"] = "none"
    return own


def to_java(own: Mapping[str, Any]) -> dict[str, str]:
    """The TLS and SASL part of a client's settings in the words of Java's clients and tools."""
    java = {key: str(own[key]) for key in SAME_FOR_JAVA if key in own}
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    mechanism = own.get("sasl.mechanisms", own.get("sasl.mechanism"))
    if mechanism:
        java["sasl.mechanism"] = str(mechanism)
    if "sasl.username" in own:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = " ".join(f'{name}="{_quoted(own.get(f"sasl.{name}", ""))}"' for name in ("username", "password"))
        java["sasl.jaas.config"] = f"org.apache.kafka.common.security.{module} required {login};"
    texts = {pem: Path(str(own[file])).read_text() for file, pem in FILES.items() if file in own}
    java |= {theirs: str({**own, **texts}[ours]) for theirs, ours in PEM.items() if ours in {**own, **texts}}
    if "ssl.ca.location" in own:
        java["ssl.truststore.location"] = str(own["ssl.ca.location"])
    if "ssl.key.password" in own:
        java["ssl.key.password"] = str(own["ssl.key.password"])
    for store in ("ssl.truststore", "ssl.keystore"):
        if any(key.startswith(store) for key in java):
            java[f"{store}.type"] = "PEM"
    return java


def for_spark(own: Mapping[str, Any], writes: bool) -> tuple[dict[str, str], list[str]]:
    """A client's settings for a reader or a writer in Java's words, and the names of those that cannot be carried there."""
    known = TLS_AND_LOGIN | BOTH.keys() | READER.keys() | WRITER.keys()
    left = [
        name
        for name, value in own.items()
        if _elsewhere(name, str(value).strip()) or (name not in known and (name, str(value).lower()) not in ALREADY)
    ]
    words = BOTH | (WRITER if writes else READER)
    return {java: str(own[name]) for name, java in words.items() if name in own} | to_java(own), sorted(left)


def _elsewhere(name: str, value: str) -> bool:
    """Does Java refuse this value, or read it as something else? Its numbers are whole, and its 0 and -1 mean other things."""
    if name in {"connections.max.idle.ms", "topic.metadata.refresh.interval.ms", "metadata.max.age.ms"}:
        return value in {"0", "-1"}
    return name in {"linger.ms", "queue.buffering.max.ms"} and not value.isdigit()


def _quoted(value: str) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"')
