"""Consumer groups: members to start, stop, keep busy and crash; who holds what; how far behind; what happened over time.

In:  a lab or a cluster, a group's name, topics. Out:

    scores = Group(lab, "scores", football)      # real members, each a small process with a real Consumer
    scores.join(3); scores.pause("ann"); scores.resume(); scores.crash("ben"); scores.leave(); scores.close()
    scores.assignment() -> Assignment            # '3 members, 4 partitions: 2 + 1 + 1'
    scores.lag() -> Lag;  scores.work -> Work;  scores.timeline() -> Timeline;  scores.draw() -> picture
    assignment(cluster, group, topic), lag(cluster, group, topic)      # of anybody's group
    clocks(cluster, group, session=2)            # of a KIP-848 group

`values.py` and `timeline.py` know no Kafka; `ask.py` asks the cluster; `group.py` holds the members, `process.py` starts and kills
them, `member.py` is what runs in each.
"""

from kqlib.workshop.groups.ask import assignment as assignment, clocks as clocks, lag as lag
from kqlib.workshop.groups.group import Group as Group
from kqlib.workshop.groups.timeline import (
    Change as Change,
    Event as Event,
    Span as Span,
    Stop as Stop,
    Timeline as Timeline,
)
from kqlib.workshop.groups.values import Assignment as Assignment, Lag as Lag, Part as Part, Work as Work
