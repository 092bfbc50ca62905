"""Which steps are possible in a small world, and which promises do not hold in it.

In:  a world. Out: steps for `World.do`; sentences, none if all is well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kqlib.errors import LeaseLost
from kqlib.queue.partition import Partition
from tests.unit.small_broker import done
from tests.unit.small_process import AT, CLOCK, NO_ANSWER_YET, NOW, Process
from tests.unit.small_world import Step, World


def possible(world: World) -> list[Step]:
    """Every step that is possible now: a method's name and its argument."""
    found: list[Step] = []
    for name, process in world.processes.items():
        found += [(step, name) for step in (*_of_workers(world, process), *_of_thread(world, process))]
        found += [("ack", (name, at)) for at in range(len(process.held))]
        if world.left["step"] and not process.stage:
            found += [("step", (name, at)) for at in range(len(process.held))]
    found += [("start", name) for name, process in world.all.items() if not process.alive]
    living = {process.member for process in world.all.values() if process.alive}
    awaited = {id(process.request) for process in world.all.values() if process.alive}
    firsts = {request.member: at for at, request in reversed(list(enumerate(world.broker.network)))}
    found += [("arrives", at) for at in firsts.values()]
    found += [("vanishes", at) for at in firsts.values() if id(world.broker.network[at]) not in awaited]
    found += [("expire", each) for each in world.broker.members if each not in living or world.left["expire"]]
    if world.left["move"] and world.broker.owner and not world.broker.next_owner:
        found += [("move", each) for each in world.broker.members if each != world.broker.owner]
    if world.left["leases_end"] and any(process.held for process in world.processes.values()):
        found.append(("leases_end", ""))
    if world.broker.pending:
        found.append(("end_arrives", ""))
        if world.broker.pending.member not in living or world.left["abort"]:
            found.append(("abort", ""))
    return found


def _of_workers(world: World, process: Process) -> Iterator[str]:
    own = process.partition
    if world.left["crash"]:
        yield "crash"
    if process.claimed:
        if all(each.dropped or each.saved >= each.awaited for each, _ in process.claimed):
            yield "hand_out"
    elif own and own in process.session.partitions_of(AT[0]) and (own.claimable() or _ended(own)):
        yield "claim"
    if process.stage == "begun":
        yield "freeze"
    elif process.stage == "frozen":
        yield "offsets_arrive"
    elif process.stage == "asked" and not (world.broker.pending and world.broker.pending is process.frozen):
        yield "end_unknown"  # the broker has aborted it meanwhile
    elif process.stage == "ended":
        yield "end_answered"
    if process.stage in ("asked", "ended") and world.left["unanswered"]:
        yield "end_unanswered"


def _of_thread(world: World, process: Process) -> Iterator[str]:
    session, own = process.session, process.partition
    if process.sent:  # it waits
        if process.answer != NO_ANSWER_YET:
            yield "answered"
        if world.left["unanswered"]:
            yield "unanswered"
        return
    if process.commits.due(NOW)[1]:
        yield "send"
    if not process.epoch:
        yield "join"
    elif process.member not in world.broker.members:
        yield "lost"
    elif own and own.leaving:
        yield "give_up" if process.gave_back else "give_back"
    elif world.broker.owner == process.member and world.broker.next_owner and session.mine():
        yield "leave" if own else "give_up"
    elif world.broker.owner == process.member and not session.mine():
        yield "given"
    if loading := session.loadings.get(AT):
        if loading.over:
            yield "take_over"
        elif not world.broker.pending:
            yield "read"


def _ended(partition: Partition) -> bool:
    return any(lease.deadline <= CLOCK.now for lease in partition.leases.values())


def broken(world: World) -> Iterator[str]:
    """What does not hold."""
    live = Counter(number for process in world.processes.values() for number in _live(world, process))
    for number, held in live.items():
        if held > 1:
            yield f"Item {number} is held by two workers, and the acks of both would be stored."
    finished = done(world.broker.stored, world.items)
    waits = {ack.offset for process in world.processes.values() for ack in process.acking}
    for number in range(world.items):
        if number not in finished and number in world.acked:
            yield f"The ack of item {number} was confirmed, and in the stored state it is open."
        if number not in finished and world.broker.written[number]:
            yield f"The outputs of item {number} are written, and in the stored state it is open."
        if number in finished and number not in world.ended:
            yield f"In the stored state item {number} is done, and no worker has ended it."
        known = world.acked | world.unknown | waits
        denied = number in world.refused and number not in known and not world.broker.written[number]
        if number in finished and denied and not _stepping(world, number):
            yield f"The ack of item {number} was refused as not stored, and it is stored."
        if world.broker.written[number] > 1:
            yield f"The outputs of item {number} are written twice."


def _stepping(world: World, number: int) -> bool:
    return any(process.stepping and process.stepping.offset == number for process in world.processes.values())


def _live(world: World, process: Process) -> Iterator[int]:
    """The items in hand whose acks would be stored."""
    if not process.epoch or world.broker.members.get(process.member) != process.epoch:
        return
    for item in process.held:
        try:
            process.queue._partition_of(item)
        except LeaseLost:
            continue
        yield item.offset
    if process.ending and process.stepping and not process.ending.acks[0].partition.dropped:
        yield process.stepping.offset
