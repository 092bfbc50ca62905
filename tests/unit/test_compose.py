"""docker-compose.yml without an engine: it keeps the specification, its names fit, nothing is open to the network.

In:  docker-compose.yml, compose/Dockerfile, the specification's schema in tests/compose.
Out: a list of sentences, one a problem; the table of mistakes plants each of them and sees it named.
"""

import copy
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.specifiers import SpecifierSet

from kqlib.workshop.cluster import node

REPO = Path(__file__).parents[2]
SPECIFICATION = jsonschema.Draft202012Validator(json.loads((REPO / "tests/compose/compose-spec.json").read_text()))
TEXT = (REPO / "docker-compose.yml").read_text()
COMPOSE = yaml.safe_load(TEXT)
DOCKERFILE = (REPO / "compose/Dockerfile").read_text()
BROKERS = {name: service for name, service in COMPOSE["services"].items() if name.startswith("broker-")}
PATIENCE = ("interval", "timeout", "start_period", "start_interval")
OWN = ("KAFKA_NODE_ID", "KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS")


# -- what can be wrong
def problems(file: dict[str, Any]) -> list[str]:
    """Everything that is wrong with a compose file, a sentence each."""
    found = [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in SPECIFICATION.iter_errors(file)]
    if found:
        return found  # the checks below rely on the shape
    found = list(of_the_whole(file))
    for name, service in file["services"].items():
        found += [f"{name}: {problem}" for problem in (*of_its_names(service, file), *of_itself(service))]
    return found


def of_the_whole(file: dict[str, Any]) -> Iterator[str]:
    if "version" in file:
        yield "version: is obsolete"
    used = [port for service in file["services"].values() for port in service.get("ports", [])]
    yield from (f"{port} is published twice" for port in sorted({str(port) for port in used if used.count(port) > 1}))
    for text in strings(file):
        for name, rest in re.findall(r"\$(?!\$)\{?(\w+)([^}]*)", text.replace("$$", "")):
            if not rest.startswith((":-", ":?")):
                yield f"${name} has no default"


def of_its_names(service: dict[str, Any], file: dict[str, Any]) -> Iterator[str]:
    for other, how in service.get("depends_on", {}).items():
        if other not in file["services"]:
            yield f"depends on {other}, which is not there"
            continue
        started_with = file["services"][other].get("profiles")
        if started_with and not set(service.get("profiles", [])) <= set(started_with):
            yield f"depends on {other}, which is not in all of its profiles"
        if how["condition"] != "service_healthy":
            yield f"does not wait until {other} is healthy"
    sources = [volume.split(":")[0] for volume in service.get("volumes", [])]
    for name in sources:
        if not name.startswith((".", "/")) and name not in file["volumes"]:
            yield f"mounts {name}, which is not a volume"


def of_itself(service: dict[str, Any]) -> Iterator[str]:
    for port in service.get("ports", []):
        if not str(port).startswith("127.0.0.1:"):
            yield f"publishes {port} beyond loopback"
    if not re.search(r":v?\d+\.\d+\.\d+[\w.-]*$", service.get("image", "")):
        yield f"image {service.get('image')} is not pinned to a version"
    check = service.get("healthcheck", {})
    if check.get("disable") or check.get("test", ["NONE"])[0] == "NONE":
        yield "has no health check"
    for key in PATIENCE:
        if not re.fullmatch(r"(\d+(ms|s|m|h))+", check.get(key, "1s")):
            yield f"{key} {check[key]} is no duration"
    for key, value in service.get("environment", {}).items():
        if re.search("TOKEN|PASSWORD|SECRET", key) and not str(value).startswith("${"):
            yield f"{key} is a secret in the file"


def written_twice(at: yaml.Node | None) -> Iterator[str]:
    """Keys that one mapping has twice: Compose refuses them, Python's YAML keeps the last."""
    if isinstance(at, yaml.MappingNode):
        keys = [key.value for key, _ in at.value]
        yield from sorted({key for key in keys if keys.count(key) > 1})
        for _, value in at.value:
            yield from written_twice(value)


def strings(value: Any) -> Iterator[str]:
    """Every string in a tree of dicts and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for part in value.values() for text in strings(part))
    elif isinstance(value, list):
        yield from (text for part in value for text in strings(part))


# -- the file, and the file with a mistake in it
def test_the_file_has_no_problem():
    assert problems(COMPOSE) == []


def test_no_key_is_written_twice():
    assert list(written_twice(yaml.compose(TEXT))) == []
    assert list(written_twice(yaml.compose("a: {b: {c: 1, c: 2}}"))) == ["c"]


MISTAKES: list[tuple[str, Any, str]] = [  # where, what is put there (None: taken away), what must be reported
    ("services.registry.evironment", {}, "'evironment' was unexpected"),
    ("services.registry.healthcheck.interval", "often", "interval often is no duration"),
    ("services.kafka-ui.depends_on.zookeeper", {"condition": "service_healthy"}, "depends on zookeeper"),
    ("services.jupyter.depends_on.registry", {"condition": "service_healthy"}, "not in all of its profiles"),
    ("services.jupyter.depends_on.broker-1.condition", "service_started", "does not wait until broker-1"),
    ("services.broker-1.volumes", ["brokr-1:/var/lib/kafka/data"], "mounts brokr-1"),
    ("services.kafka-ui.ports", ["8080:8080"], "publishes 8080:8080 beyond loopback"),
    ("services.kafka-ui.ports", [8080], "beyond loopback"),
    ("services.kafka-ui.ports", [{"target": 8080, "published": "8080"}], "beyond loopback"),
    ("services.kafka-ui.ports", ["127.0.0.1:8081:8081"], "published twice"),
    ("services.kafka-ui.image", "ghcr.io/kafbat/kafka-ui:v1", "not pinned"),
    ("services.kafka-ui.healthcheck", None, "kafka-ui: has no health check"),
    ("services.kafka-ui.healthcheck", {"disable": True}, "has no health check"),
    ("services.kafka-ui.healthcheck.test", ["NONE"], "has no health check"),
    ("services.kafka-ui.environment.JAVA_OPTS", "${HEAP}", "$HEAP has no default"),
    ("services.jupyter.environment.JUPYTER_TOKEN", "letmein", "JUPYTER_TOKEN is a secret"),
    ("version", "3.9", "obsolete"),
]


@pytest.mark.parametrize(("where", "what", "answer"), MISTAKES, ids=[f"{where}={what}" for where, what, _ in MISTAKES])
def test_a_mistake_is_named(where, what, answer):
    file = copy.deepcopy(COMPOSE)
    *path, last = where.split(".")
    place = file
    for key in path:
        place = place[key]
    place.pop(last, None)
    if what is not None:
        place[last] = what
    assert answer in "\n".join(problems(file))


# -- three brokers, one cluster
def test_the_brokers_differ_only_in_who_and_where_they_are():
    shared = [{key: value for key, value in b["environment"].items() if key not in OWN} for b in BROKERS.values()]
    assert len(BROKERS) == 3
    assert shared[0] == shared[1] == shared[2]
    assert len({broker["environment"]["KAFKA_NODE_ID"] for broker in BROKERS.values()}) == 3
    assert len({volume for broker in BROKERS.values() for volume in broker["volumes"]}) == 3


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_is_reached_under_the_names_it_gives_itself(name):
    broker, kafka = BROKERS[name], BROKERS[name]["environment"]
    advertised = dict(listener.split("://") for listener in kafka["KAFKA_ADVERTISED_LISTENERS"].split(","))
    listening = dict(listener.split("://") for listener in kafka["KAFKA_LISTENERS"].split(","))
    assert advertised["INSIDE"] == name + listening["INSIDE"]
    assert broker["ports"] == [advertised["HOST"] + listening["HOST"]]
    voters = kafka["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")
    assert f"{kafka['KAFKA_NODE_ID']}@{name}{listening['CONTROLLER']}" in voters
    assert set(listening) == {pair.split(":")[0] for pair in kafka["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")}
    assert f"localhost{listening['INSIDE']}" in broker["healthcheck"]["test"]


@pytest.mark.parametrize(
    ("service", "variable"),
    [
        ("jupyter", "KQ_BOOTSTRAP"),
        ("registry", "KARAPACE_BOOTSTRAP_URI"),
        ("kafka-ui", "KAFKA_CLUSTERS_0_BOOTSTRAPSERVERS"),
    ],
)
def test_who_uses_the_brokers_names_all_three_and_waits_for_them(service, variable):
    user = COMPOSE["services"][service]
    assert user["environment"][variable].split(",") == [f"{name}:9092" for name in BROKERS]
    assert set(BROKERS) <= set(user["depends_on"])


def test_one_broker_may_die():
    kafka = BROKERS["broker-1"]["environment"]
    copies = {key: value for key, value in kafka.items() if key.endswith("REPLICATION_FACTOR")}
    in_sync = {key: value for key, value in kafka.items() if key.endswith(("_ISR", "INSYNC_REPLICAS"))}
    assert set(copies.values()) == {3}
    assert set(in_sync.values()) == {2}
    assert len(copies) == 4  # topics, offsets, transactions, share groups
    assert len(in_sync) == 3  # offsets take the topics'


def test_the_brokers_are_the_embedded_ones_in_version_and_clocks():
    kafka = BROKERS["broker-1"]["environment"]
    lock = tomllib.loads((REPO / "kqlib/runtime/jars.lock").read_text())
    assert f"org.apache.kafka:kafka_2.13:{BROKERS['broker-1']['image'].split(':')[1]}" in lock["broker"]["ask"]
    ours = {key.removeprefix("KAFKA_").replace("_", ".").lower(): str(value) for key, value in kafka.items()}
    same = {key: value for key, value in ours.items() if key in node.LAB}
    assert same == {key: node.LAB[key] for key in same}
    assert {"auto.create.topics.enable", "offsets.retention.minutes", "group.initial.rebalance.delay.ms"} <= set(same)


def test_kafkas_tools_do_not_take_the_cluster_id_for_an_option():
    assert re.fullmatch(r"[\w][\w-]{21}", BROKERS["broker-1"]["environment"]["CLUSTER_ID"])


# -- Spark and Jupyter: one image
def test_driver_and_workers_run_one_image_that_one_service_builds():
    lab = {name: s for name, s in COMPOSE["services"].items() if s["image"].startswith("kqlib-lab:")}
    assert set(lab) == {"jupyter", "spark-master", "spark-worker-1", "spark-worker-2"}
    assert len({service["image"] for service in lab.values()}) == 1
    assert [name for name, service in lab.items() if "build" in service] == ["spark-master"]
    assert all("spark-master" in lab[name]["depends_on"] for name in lab if name != "spark-master")
    assert (REPO / lab["spark-master"]["build"]["dockerfile"]).is_file()


def test_the_image_has_a_pinned_python_that_kqlib_runs_on_and_what_the_lock_names():
    python = re.search(r"^FROM python:(\d+\.\d+\.\d+)-slim-bookworm$", DOCKERFILE, re.MULTILINE)
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    assert python is not None
    assert python[1] in SpecifierSet(project["requires-python"])
    assert "pip install --no-cache-dir --require-hashes -r requirements.lock" in DOCKERFILE


def test_the_driver_and_its_workers_find_each_other_and_share_their_files():
    services = COMPOSE["services"]
    jupyter, master = services["jupyter"], services["spark-master"]["environment"]
    address = f"spark://{master['SPARK_MASTER_HOST']}:{master['SPARK_MASTER_PORT']}"
    assert jupyter["environment"]["KQ_SPARK_MASTER"] == address
    for name in ("spark-worker-1", "spark-worker-2"):
        assert services[name]["command"][-1] == address
        assert services[name]["environment"]["TMPDIR"] == jupyter["environment"]["TMPDIR"]
        assert "lab:/var/lib/kqlib" in services[name]["volumes"]
    for name in ("jupyter", "spark-worker-1", "spark-worker-2"):
        assert services[name]["environment"]["SPARK_LOCAL_HOSTNAME"] == name
    assert ".:/srv/kqlib" in jupyter["volumes"]
