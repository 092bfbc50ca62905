"""`kq.crash`: a command is run with an accident at each of its requests to Kafka, and each run is judged.

`runs` finds the points and runs them, `life` is one run, `leaving` tidies up after a killed process, `verdict` judges the results,
`report` shows what was found.
"""

from kqlib.workshop.crash.report import Report
from kqlib.workshop.crash.runs import crash, crash_cluster

__all__ = ["Report", "crash", "crash_cluster"]
