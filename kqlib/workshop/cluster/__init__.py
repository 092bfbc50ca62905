"""A real Kafka on this machine: 1 to 3 brokers or more, gone with this process.

`embedded` starts and stops it; `node` is one broker's files and process; `secure` its certificates and users; `up` keeps one between
processes for `kq up`.
"""

from kqlib.workshop.cluster.embedded import Broker, Cluster

__all__ = ["Broker", "Cluster"]
