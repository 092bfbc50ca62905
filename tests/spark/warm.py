"""PySpark's daemon, which forks the workers, with what our functions import: else each worker imports it again."""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow  # noqa: F401
from pyspark import daemon

from kqlib.spark import decode, replay  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
