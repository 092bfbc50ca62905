"""Kafka's own tools from the pinned jars, with their own arguments; address and login are filled in unless given.

In:  a tool's name as in Kafka's bin directory, without `kafka-` and `.sh`, and its arguments. Out: what it printed (`run`), or
this process turned into the tool (`become`, for the command line).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from kqlib.errors import NotAllowed, NotInTime
from kqlib.kafka import settings
from kqlib.runtime import program
from kqlib.runtime.patience import PATIENCE
from kqlib.runtime.reaper import Reaper
from kqlib.text import near

_TOOLS = "org.apache.kafka.tools."
_CONNECT = "org.apache.kafka.connect."

# The tools that talk to a cluster and take --bootstrap-server and --command-config, which are filled in.
ASKING = {
    "acls": _TOOLS + "AclCommand",
    "broker-api-versions": _TOOLS + "BrokerApiVersionsCommand",
    "client-metrics": _TOOLS + "ClientMetricsCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": _TOOLS + "consumer.ConsoleConsumer",
    "console-producer": _TOOLS + "ConsoleProducer",
    "console-share-consumer": _TOOLS + "consumer.ConsoleShareConsumer",
    "consumer-groups": _TOOLS + "consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": _TOOLS + "ConsumerPerformance",
    "delegation-tokens": _TOOLS + "DelegationTokenCommand",
    "delete-records": _TOOLS + "DeleteRecordsCommand",
    "features": _TOOLS + "FeatureCommand",
    "get-offsets": _TOOLS + "GetOffsetShell",
    "groups": _TOOLS + "GroupsCommand",
    "leader-election": _TOOLS + "LeaderElectionCommand",
    "log-dirs": _TOOLS + "LogDirsCommand",
    "metadata-quorum": _TOOLS + "MetadataQuorumCommand",
    "producer-perf-test": _TOOLS + "ProducerPerformance",
    "reassign-partitions": _TOOLS + "reassign.ReassignPartitionsCommand",
    "share-consumer-perf-test": _TOOLS + "ShareConsumerPerformance",
    "share-groups": _TOOLS + "consumer.group.ShareGroupCommand",
    "streams-application-reset": _TOOLS + "StreamsResetter",
    "streams-groups": _TOOLS + "streams.StreamsGroupCommand",
    "topics": _TOOLS + "TopicCommand",
    "transactions": _TOOLS + "TransactionsCommand",
    "verifiable-consumer": _TOOLS + "VerifiableConsumer",
    "verifiable-producer": _TOOLS + "VerifiableProducer",
}
# The tools that read files, or take an address in a way of their own: nothing is filled in.
OTHER = {
    "cluster": _TOOLS + "ClusterTool",
    "connect-distributed": _CONNECT + "cli.ConnectDistributed",
    "connect-mirror-maker": _CONNECT + "mirror.MirrorMaker",
    "connect-plugin-path": _TOOLS + "ConnectPluginPath",
    "connect-standalone": _CONNECT + "cli.ConnectStandalone",
    "dump-log": _TOOLS + "DumpLogSegments",
    "e2e-latency": _TOOLS + "EndToEndLatency",
    "jmx": _TOOLS + "JmxTool",
    "replica-verification": _TOOLS + "ReplicaVerificationTool",
    "storage": "kafka.tools.StorageTool",
}
LOGGING = Path(__file__).with_name("log4j2-tools.properties")
ADDRESSED = ("--bootstrap-server", "--bootstrap-controller", "--help", "--version")


def names() -> list[str]:
    """Every tool, by name."""
    return sorted([*ASKING, *OTHER])


def run(tool: str, args: Sequence[str], bootstrap: str | None, own: Mapping[str, Any], timeout: float = 60) -> str:
    """Run a tool to its end and return what it printed; `NotAllowed` with its words if it failed. timeout: × KQ_PATIENCE."""
    timeout *= PATIENCE
    with tempfile.TemporaryDirectory(prefix="kqlib-tool-") as place, Reaper() as reaper:
        log, login = Path(place) / "log", Path(place) / "login"
        program.write_properties(login, settings.to_java(own))
        child = reaper.start(tool, command(tool, [str(arg) for arg in args], bootstrap, own, login), log)
        code = child.wait(timeout)
        printed = log.read_text(errors="replace").rstrip() if log.exists() else ""
    if code is None:
        raise NotInTime(seconds=timeout, why=f"`kq kafka {tool}` to end", last=printed[-300:] or "(it printed nothing)")
    if code != 0:
        lines = [line for line in printed.splitlines() if not line.startswith("\tat ")]  # without Java's stack
        words = "\n".join(lines)[-1500:]
        raise NotAllowed(f"`kq kafka {tool}` ended with {code}: {words or child.why}")
    return printed


def become(tool: str, args: Sequence[str], bootstrap: str | None, own: Mapping[str, Any]) -> NoReturn:
    """Turn this process into the tool: terminal, stdin and signals are its own, and nothing of Python is left to outlive it."""
    read, write = os.pipe()  # the login goes through a pipe: no file with a password is left behind
    words = command(tool, args, bootstrap, own, Path(f"/dev/fd/{read}"))
    os.write(write, program.properties_text(settings.to_java(own)).encode())
    os.close(write)
    os.set_inheritable(read, True)
    sys.stdout.flush()
    os.execv(words[0], words)


def command(tool: str, args: Sequence[str], bootstrap: str | None, own: Mapping[str, Any], login: Path) -> list[str]:
    """The Java command of a tool, with the address and, if this cluster asks for one, the file with the login."""
    known = {**ASKING, **OTHER}
    if tool not in known:
        hint = near(tool, known, 3) or f"; there are {', '.join(names())}"
        raise NotAllowed(f"there is no tool {tool!r}{hint}")
    filled: list[str] = []  # before the arguments: tools with sub-commands (features) take it only there
    if tool in ASKING and bootstrap and not any(arg.startswith(ADDRESSED) for arg in args):
        filled += ["--bootstrap-server", bootstrap]
        if settings.to_java(own) and "--command-config" not in args:
            filled += ["--command-config", str(login)]
    return program.jvm(known[tool], *filled, *args, logging=LOGGING)
