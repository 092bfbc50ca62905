"""`kq gameday`: a running system with faults that a seed has hidden; a person finds and repairs them, and is graded.

- grade: what is counted, and the debrief.
- system: the programs that run, and the audit.
- faults: each fault: what it does, the trace that it leaves, how it is repaired.
- game: which faults come when, answers, repairs.
- holder: the process that has the cluster and the game. Commands ask it.
"""
