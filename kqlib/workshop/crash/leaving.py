"""Tidy up after a killed process, in its name: leave its groups and end its transactions.

Without that its group keeps its partitions for the session (45 s by default), and readers wait for its transaction's timeout.
In:  what has crossed from it, and a broker. Out: what was done, in words.
"""

from __future__ import annotations

from collections.abc import Iterable

from kqlib.workshop.wire.crossing import Crossing
from kqlib.workshop.wire.messages import BrokerConnection

LEAVES = -1  # as a member's epoch
NEW = ("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat")
CLASSIC = ("JoinGroup", "SyncGroup", "Heartbeat")
END_TXN, LEAVE = 3, 3  # versions that know what we need


def tidy(crossed: Iterable[Crossing], broker: BrokerConnection) -> list[str]:
    """Leave the groups and abort the transactions of a process that has ended. The group's coordinator is this broker."""
    done = []
    members, producers = _members(crossed), _producers(crossed)
    for (kind, group, member), instance in members.items():
        if kind == "LeaveGroup":
            gone = [{"MemberId": member, "GroupInstanceId": instance}]
            answer = broker.ask("LeaveGroup", LEAVE, {"GroupId": group, "Members": gone})
        else:
            values = {"GroupId": group, "MemberId": member, "MemberEpoch": LEAVES, "RebalanceTimeoutMs": -1}
            answer = broker.ask(kind, broker.messages.newest(kind), values)
        if not answer.get("ErrorCode") and not any(each["ErrorCode"] for each in answer.get("Members") or ()):
            done.append(f"left group {group} in its name")
    for name, (number, epoch) in producers.items():
        values = {"TransactionalId": name, "ProducerId": number, "ProducerEpoch": epoch, "Committed": False}
        if not broker.ask("EndTxn", END_TXN, values).get("ErrorCode"):
            done.append(f"aborted its transaction {name}")
    return done


def _members(crossed: Iterable[Crossing]) -> dict[tuple[str, str, str], str | None]:
    """Who is in a group and has not left: how to leave, the group, the member; and its instance."""
    found: dict[tuple[str, str, str], str | None] = {}
    for each in crossed:
        group = each.request.get("GroupId", "")
        if each.api in NEW:
            member = each.request.get("MemberId") or each.answer.get("MemberId")
            key = (each.api, group, member or "")
            found[key] = None
            if each.request.get("MemberEpoch", 0) < 0:
                del found[key]
        elif each.api in CLASSIC:
            member = each.answer.get("MemberId") or each.request.get("MemberId")
            if member:
                found["LeaveGroup", group, member] = each.request.get("GroupInstanceId")
        elif each.api == "LeaveGroup":
            for one in each.request.get("Members") or [each.request]:
                found.pop(("LeaveGroup", group, one.get("MemberId", "")), None)
    return found


def _producers(crossed: Iterable[Crossing]) -> dict[str, tuple[int, int]]:
    """Each transactional id with its newest producer id and epoch."""
    found = {}
    names: dict[int, str] = {}
    for each in crossed:
        name = each.request.get("TransactionalId")
        answer = each.answer
        if name and answer.get("ProducerId", -1) >= 0 and not answer.get("ErrorCode"):
            found[name] = (answer["ProducerId"], answer["ProducerEpoch"])
            names[answer["ProducerId"]] = name
    return found
