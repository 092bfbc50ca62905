"""The topics to which a process of a site subscribes: joined at the first claim, left when nobody claims, visited daily.

In:  claims, the time. Out: the topics to subscribe to now. Pure.
Kafka forgets a group's state a week after its last commit (offsets.retention.minutes) once no member is subscribed. So a process
that has claimed from a queue joins it for a moment every day, and an owner commits a new epoch. Where no process of the site lives for
that long the state is gone: `LedgerLost`, never a replay.
"""

from __future__ import annotations

from collections.abc import Callable

IDLE = 60.0  # seconds without a claim until a subscription is dropped: idle processes starve nobody
LONG = 24 * 3600.0  # seconds after which a state is committed again
VISIT = 20.0  # seconds that a visit lasts at most; it ends when the state is committed


class Subscriptions:
    """The topics of a process, and when a claim last came to each."""

    def __init__(self) -> None:
        self._claimed: dict[str, float] = {}  # topic -> when a claim last came
        self._left: dict[str, float] = {}  # topic -> when it was left
        self._visits: set[str] = set()  # joined for their states' sake

    def claim(self, topic: str, now: float) -> None:
        """A claim begins."""
        self._claimed[topic] = now
        self._left.pop(topic, None)
        self._visits.discard(topic)

    def refuse(self, topic: str) -> None:
        """This user may not claim from it: leave at once. A topic that the user may not see stops the heartbeats for all topics."""
        if topic in self._claimed:
            self._claimed[topic] = float("-inf")

    def topics(self, now: float, held: Callable[[str], bool], stored: Callable[[str], bool]) -> set[str]:
        """The topics to subscribe to now. held: are leases open there? stored: are its states committed since it was joined?"""
        for topic in [topic for topic, at in self._left.items() if now - at > LONG]:
            del self._left[topic]
            self._visits.add(topic)
            self._claimed[topic] = now - IDLE + VISIT
        for topic, at in list(self._claimed.items()):
            over = now - at > IDLE or (topic in self._visits and stored(topic))
            if over and not held(topic):
                del self._claimed[topic]
                self._visits.discard(topic)
                self._left[topic] = now
        return set(self._claimed)
