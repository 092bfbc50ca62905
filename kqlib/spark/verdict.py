"""What became of an item, in one word: the rule, in the words of SQL, so that Spark applies it and any database can try it.

In:  per item how many results and dead letters name it, whether it was put back, what the ledger says; how many results an item
has that is done (`outputs`). Out: one of `VERDICTS`.

    results, dead    how many records name the item, of this site
    again            how many records of the queue say that they are this dead item, put back
    theirs          put back by another site, for itself
    marked           below a purge mark
    state            of the ledger: done, open (handed out, or passed over), waiting (nobody has looked at it)
    attempts         of an open one: how often it was handed out
    unseen           so old that retention or compaction may have removed its result or dead letter before the audit

'missing' is an item that is done without its results, and they were never written. Of one that is `unseen` nobody can tell: it is
'removed'. A record that was put back says that there was a dead letter, also when the letter itself is gone.

The first that is true is the verdict. Endings that are seen come before what the ledger says: the ledger was read first, and an
item that was open then may have ended since.
"""

from __future__ import annotations

RULE = (
    ("another site's", "theirs"),
    ("doubled", "results > {outputs} OR dead > 1 OR again > 1 OR (results > 0 AND dead + again > 0)"),
    ("once", "results = {outputs}"),
    ("redriven", "again = 1"),
    ("dead", "dead = 1"),
    ("purged", "marked"),
    ("in flight", "state = 'open' AND attempts > 0"),
    ("waiting", "state = 'open' OR state = 'waiting'"),
    ("removed", "state = 'done' AND unseen"),
    ("missing", "state = 'done'"),
)
VERDICTS = tuple(verdict for verdict, _ in RULE)
FAULTS = ("missing", "doubled")
OPEN = ("waiting", "in flight")  # not ended yet: the next look may say something else


def case(outputs: int = 1) -> str:
    """The rule as one SQL expression."""
    lines = [f"WHEN {condition.format(outputs=outputs)} THEN '{quoted(verdict)}'" for verdict, condition in RULE]
    return f"CASE {' '.join(lines)} END"


def quoted(word: str) -> str:
    """A word inside of SQL's quotes."""
    return word.replace("'", "''")


def column(verdict: str) -> str:
    """A verdict as the name of a column: another_sites."""
    return verdict.replace(" ", "_").replace("'", "")
