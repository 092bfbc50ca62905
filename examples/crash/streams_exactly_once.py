"""kafka-streams==4.3.1: exactly_once_v2, results and offsets in one transaction, every 100 ms.

Promises: each record is processed once, also after a failure, if readers of the results read what is committed.
Again: python -m examples.crash.page streams_exactly_once
"""

from streams.run import run

run("exactly_once_v2")
