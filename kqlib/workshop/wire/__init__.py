"""What crosses between clients and brokers: seen, delayed, cut, answered with an error, and a process killed at any request.

`proxy` is the process in between, `connections` and `traffic` its parts, `control` the object `cluster.wire` that commands it,
`messages` Kafka's own definitions, `crossing` one request with what matters in it.
"""

from kqlib.workshop.wire.control import Wire
from kqlib.workshop.wire.crossing import Crossing

__all__ = ["Crossing", "Wire"]
