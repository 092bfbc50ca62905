"""Everything that brokers need, fetched and prepared once: `python -m kqlib.workshop.cluster`, which `make lab` calls."""

from __future__ import annotations

import time
from pathlib import Path

from kqlib.runtime import archive, jars, program
from kqlib.workshop.children import Children
from kqlib.workshop.cluster import node


def record(options: list[str], place: Path) -> None:
    """Run a broker until it listens; the options let it keep the classes that it loaded at its end."""
    port, controller = node.free_ports(2)
    one = node.Node(1, port, controller, place / "broker-1")
    program.write_properties(one.settings, node.properties(one, [one], {}))
    node.format_disks([one], {}, node.new_id())
    command = node.run_command(one)
    with Children() as children:
        child = children.run("record", [command[0], *options, *command[1:]], one.log)
        deadline = time.monotonic() + 60
        while child.alive and not node.open_port(port) and time.monotonic() < deadline:
            time.sleep(0.05)
        child.stop(60)


if __name__ == "__main__":
    jars.fetch("broker")
    archive.make(program.classpath(), record)
