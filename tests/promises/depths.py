"""Another process that says how deep queues are. It claims nothing: `python -m tests.promises.depths BOOTSTRAP`.

In:  the name of a queue on each line; its site has the same name. Out: its depth, on a line.
"""

from __future__ import annotations

import sys

from kqlib.kafka import Kafka
from kqlib.queue import Site


def main() -> None:
    cluster = Kafka(sys.argv[1])
    for line in sys.stdin:
        name = line.strip()
        with Site(cluster, name) as site:
            print(site.queue(name).depth(), flush=True)


if __name__ == "__main__":
    main()
