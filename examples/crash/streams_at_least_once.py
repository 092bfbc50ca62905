"""kafka-streams==4.3.1: at_least_once, the default: results are sent, then offsets are committed every 30 s.

Promises: at least once: records may be processed again after a failure, and none is lost.
Again: python -m examples.crash.page streams_at_least_once
"""

from streams.run import run

run("at_least_once")
