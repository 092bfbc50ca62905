"""The settings that a Kafka client gets: kqlib's defaults, one's own file, Java's words, and no secret in anybody's sight."""

import copy
import json
import logging
import pickle
import pprint
import traceback

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from hypothesis import HealthCheck, given, settings, strategies
from IPython.lib.pretty import pretty

from kqlib.errors import BadConfig, KqError
from kqlib.kafka import cluster as kafka, settings as ours
from kqlib.kafka.settings import DEFAULTS, Secret
from kqlib.runtime import program

SECRET = "s3cr3t"
HERE = "h:1"


def client(own=None, **extra):
    return ours.client(HERE, own or {}, extra)


def read(tmp_path, text):
    file = tmp_path / "client.properties"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return ours.read(file)


@pytest.mark.parametrize(
    ("own", "extra", "changed"),
    [
        ({}, {}, {}),
        ({}, {"group_id": "g"}, {"group.id": "g"}),
        ({}, {"queue_buffering_max_ms": 5, "acks": "all"}, {"queue.buffering.max.ms": 5, "acks": "all"}),
        ({}, {"log_level": 7, "logger": None}, {"log_level": 7, "logger": None}),
        ({}, {"error_cb": print, "on_delivery": print}, {"error_cb": print, "on_delivery": print}),
        ({}, {"auto_offset_reset": "latest"}, {"auto.offset.reset": "latest"}),
        ({"auto.offset.reset": "latest"}, {"auto_offset_reset": "error"}, {"auto.offset.reset": "error"}),
        ({}, {"bootstrap_servers": "x:2"}, {"bootstrap.servers": "x:2"}),
        ({}, {"session_timeout_ms": 6000}, {"session.timeout.ms": 6000, "group.protocol": "classic"}),
        ({"heartbeat.interval.ms": "500"}, {}, {"heartbeat.interval.ms": "500", "group.protocol": "classic"}),
        ({"session.timeout.ms": "9", "group.protocol": "consumer"}, {}, {"session.timeout.ms": "9"}),
    ],
)  # fmt: skip
def test_a_client_gets_the_defaults_then_its_file_then_what_is_asked_for(own, extra, changed):
    assert client(own, **extra) == {"bootstrap.servers": HERE, **DEFAULTS, **changed}


@pytest.mark.parametrize(
    ("own", "extra", "timeout"),
    [
        ({}, {}, 10_000),
        ({"transaction.timeout.ms": "4000"}, {}, 2000),
        ({"socket.timeout.ms": "60000"}, {"transaction_timeout_ms": 10_000}, 5000),
        ({"socket.timeout.ms": "60000"}, {}, 30_000),
        ({"socket.timeout.ms": "2000"}, {}, 2000),
        ({}, {"transaction_timeout_ms": 1000}, 900),
    ],
)
def test_a_transactional_producer_never_waits_for_an_answer_longer_than_half_of_its_transaction(own, extra, timeout):
    made = client(own, transactional_id="t", **extra)
    assert made["socket.timeout.ms"] == timeout
    Producer(made, logger=logging.getLogger("silent"))


def test_settings_of_the_classic_protocol_make_a_consumer_and_not_an_error():
    classic = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500, "partition_assignment_strategy": "range"}
    for name, value in classic.items():
        Consumer(client(group_id="g", **{name: value}), logger=logging.getLogger("silent")).close()


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password", "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem", "sasl.jaas.config", "ssl.keystore.key", "SASL.PASSWORD",
    ],
)  # fmt: skip
@pytest.mark.parametrize("origin", ["file", "argument"])
def test_a_secret_is_shown_by_nobody_who_shows_the_settings(name, origin):
    made = client({name: SECRET}) if origin == "file" else client(**{name: SECRET})
    for shown in (
        repr(made),
        str(made),
        pretty(made),
        pprint.pformat(made),
        f"{made}",
        f"{made!r}",
        repr(list(made.items())),
    ):
        assert SECRET not in shown
    assert "'***'" in repr(made)
    assert "s3cr3t" not in repr(made | {"group.id": "g"})


@pytest.mark.parametrize("name", ["sasl.username", "group.id", "ssl.ca.location", "ssl.certificate.pem", "client.id"])
def test_what_is_no_secret_is_shown(name):
    assert "value" in repr(client(**{name: "value"}))


@pytest.mark.parametrize(
    "passed_on",
    [
        lambda s: s, copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s)), str, "{}".format, "%s".__mod__,
        lambda s: json.loads(json.dumps(s)), lambda s: s.encode().decode(), lambda s: client(**{"sasl.password": s})["sasl.password"],
    ],
)  # fmt: skip
def test_a_secret_is_still_the_string_that_the_client_needs(passed_on):
    assert passed_on(Secret(SECRET)) == SECRET


# --- one's own file ---------------------------------------------------------------------------------------------------

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("", {}),
        ("\n \n# a=b\n! c=d\n", {}),
        ("acks=all\n", {"acks": "all"}),
        ("acks=all\r\nretries=3\r\n", {"acks": "all", "retries": "3"}),
        ("\ufeffacks=all", {"acks": "all"}),
        ("sasl.password=a=b#c!", {"sasl.password": "a=b#c!"}),
        ("sasl.password=ends with\\\nacks=all", {"sasl.password": "ends with\\", "acks": "all"}),
        ("sasl.password=naïve€", {"sasl.password": "naïve€"}),
    ],
)
def test_a_file_in_librdkafkas_words_is_taken_as_it_is(tmp_path, text, own):
    assert read(tmp_path, text) == own


@pytest.mark.parametrize(
    ("login", "password"),
    [
        ('username="app" password="s3cr3t";', "s3cr3t"),
        ("username=app password=s3cr3t;", "s3cr3t"),
        ("username='app' password='two words';", "two words"),
        ('username="app" password="a b;c=d";', "a b;c=d"),
        ('username="app" password="user\\\\"name=\\\\"x";', 'user"name="x'),
        ('username="app" password="back\\\\\\\\slash";', "back\\slash"),
        ('username="app" password="\\u00fc\\ud83d\\ude00";', "ü😀"),
        ('\\\n   username="app" \\\n   password="s3cr3t";', "s3cr3t"),
        ('\\\n#x="y" username="app" \\\n password="s3cr3t";\nacks=all', "s3cr3t"),
    ],
)
def test_javas_login_is_understood_as_java_understands_it(tmp_path, login, password):
    own = read(tmp_path, f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS} {login}")
    assert own.pop("acks", "all") == "all"
    assert own == {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": password,
    }  # fmt: skip
    assert repr(own["sasl.password"]) == "'***'"


CHAIN = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("ssl.truststore.type=PEM\nssl.truststore.location=/ca.pem", {"ssl.ca.location": "/ca.pem"}),
        (
            "ssl.keystore.type=pem\nssl.keystore.location=/me.pem\nssl.key.password=x",
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem", "ssl.key.password": "x"},
        ),
        (
            "ssl.truststore.certificates=" + CHAIN.replace("\n", "\\n\\\n  ") + "\nacks=all",
            {"ssl.ca.pem": CHAIN, "acks": "all"},
        ),
        (
            f"ssl.keystore.key={CHAIN!r}\nssl.keystore.certificate.chain=x\nssl.keystore.type=PEM".replace("'", ""),
            {"ssl.key.pem": CHAIN, "ssl.certificate.pem": "x"},
        ),
        ("ssl.endpoint.identification.algorithm=", {"ssl.endpoint.identification.algorithm": "none"}),
        ("ssl.endpoint.identification.algorithm=https", {"ssl.endpoint.identification.algorithm": "https"}),
    ],
)
def test_javas_words_for_pem_are_understood(tmp_path, text, own):
    assert read(tmp_path, text) == own


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"sasl.password {SECRET}", ["client.properties, line 1", "name=value"]),
        (f"acks=all\n\n{SECRET}", ["line 3"]),
        (f"={SECRET}", ["line 1"]),
        (f"sasl.jaas.config={JAAS} username=a passwort={SECRET};", ["sasl.jaas.config", "sasl.username and sasl.password"]),
        (f"sasl.jaas.config={JAAS} password={SECRET};", ["sasl.username"]),
        (f"sasl.jaas.config={JAAS} \\\n password={SECRET}", ["sasl.username"]),
        (f"ssl.truststore.location=/t.jks\nssl.truststore.password={SECRET}", ["ssl.truststore.location", "PEM", "ssl.ca.location"]),
        ("ssl.truststore.type=JKS\nssl.truststore.location=/t", ["PEM"]),
        ("ssl.keystore.type=PKCS12\nssl.keystore.location=/k", ["ssl.keystore.location", "PEM", "ssl.certificate.location"]),
        (f"\xff\xfe{SECRET}".encode("latin-1"), ["KQ_KAFKA_CONFIG", "cannot be read", "UnicodeDecodeError"]),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_says_why_and_never_shows_a_secret(tmp_path, text, says):
    with pytest.raises(BadConfig) as caught:
        read(tmp_path, text)
    assert [word for word in says if word not in str(caught.value)] == []
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)


def test_a_setting_that_the_client_does_not_know_is_a_bad_config_and_shows_no_secret():
    cluster = kafka.Kafka(HERE, ours.hidden({"sasl.passwort": SECRET, "sasl.password": SECRET}))
    with pytest.raises(BadConfig, match=r'"sasl\.passwort"') as caught:
        cluster.admin  # noqa: B018 - made when it is asked for
    assert SECRET not in str(caught.value)
    assert isinstance(caught.value, KqError)
    assert SECRET not in repr(cluster)


# --- the same for Java's tools ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "java"),
    [
        ({}, {}),
        ({"acks": "all", "client.id": "x"}, {}),
        ({"security.protocol": "ssl"}, {"security.protocol": "ssl"}),
        ({"ssl.ca.location": "/ca"}, {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca"}),
        ({"ssl.ca.pem": CHAIN}, {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": CHAIN}),
        ({"ssl.endpoint.identification.algorithm": "none"}, {"ssl.endpoint.identification.algorithm": ""}),
        (
            {"sasl.mechanisms": "PLAIN", "sasl.username": 'a"b', "sasl.password": Secret("x\\y")},
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'{JAAS} username="a\\"b" password="x\\\\y";'},
        ),
        (
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "a", "sasl.password": "b"},
            {
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";',
            },
        ),
    ],
)  # fmt: skip
def test_tls_and_login_are_reported_to_java_in_its_words_and_nothing_else(own, java):
    assert ours.to_java(own) == java


@pytest.mark.parametrize("name", sorted(ours.BOTH | ours.READER | ours.WRITER | dict(ours.ALREADY)))
def test_each_setting_that_is_carried_to_spark_is_one_of_librdkafkas(name):
    def complaint(name):
        try:
            Consumer({"group.id": "g", name: "none of its values"}, logger=logging.getLogger("silent")).close()
        except KafkaException as error:
            return str(error)
        return ""

    assert "No such configuration property" in complaint(f"{name}.x")
    assert "No such configuration property" not in complaint(name)


def test_a_clients_certificate_and_key_are_handed_to_java_as_text(tmp_path):
    (tmp_path / "c.pem").write_text("CERT")
    (tmp_path / "k.pem").write_text("KEY")
    own = {
        "ssl.certificate.location": str(tmp_path / "c.pem"), "ssl.key.location": str(tmp_path / "k.pem"), "ssl.key.password": "x",
    }  # fmt: skip
    same = {"ssl.certificate.pem": "CERT", "ssl.key.pem": "KEY", "ssl.key.password": "x"}
    expected = {
        "ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "CERT", "ssl.keystore.key": "KEY", "ssl.key.password": "x",
    }  # fmt: skip
    assert ours.to_java(own) == ours.to_java(same) == expected


ANYTHING = strategies.text(strategies.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(user=ANYTHING, password=ANYTHING, chain=ANYTHING)
def test_whatever_a_login_is_made_of_it_comes_back_from_a_file_written_for_java(tmp_path, user, password, chain):
    own = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password}
    own["ssl.ca.pem"] = f"-----BEGIN-----\n{chain}\n-----END-----"
    file = tmp_path / "for-java"
    program.write_properties(file, ours.to_java(own))
    assert file.read_bytes().isascii()  # Java reads these files as Latin-1
    assert file.stat().st_mode & 0o777 == 0o600
    assert ours.read(file) == own


def test_a_complaint_about_a_setting_names_the_line_that_counts(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(f"ssl.ca.location={file}\n\nssl.ca.location={tmp_path}/none.pem\nsasl.password={SECRET}\n")
    found = str(ours.located(BadConfig(source="", why="ssl.ca.location failed: error:05880020"), file))
    assert found.startswith(f"client.properties, line 3: ssl.ca.location={tmp_path}/none.pem: there is no such file.")
    assert SECRET not in str(ours.located(BadConfig(source="", why=f"sasl.password: {'x'}"), file))
