"""A small world: the queue's own code in one or two processes, and a broker that is a few values.

In:  names of processes, how many items, how often each accident may happen. Out: the steps that are possible now. `do(step)` does
one and says what happened. `wrong` is the promise of the queue that does not hold after it.

Real: `Ledger`, `Partition`, `Assigned`, `Commits`, the verbs of `Queue`, `Endings`, and the states that a transaction freezes. The
broker is in `small_broker`. A process has one commit under way at a time, and meanwhile no rebalance, as on the session's thread.
"""

from __future__ import annotations

import pickle
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kqlib.errors import LeaseLost
from kqlib.queue.assigned import RECREATED
from kqlib.queue.incidents import Seen
from kqlib.queue.item import Out
from kqlib.queue.state import ledger_from
from kqlib.queue.transactions import Ack, Ending
from tests.unit.small_broker import Broker, words
from tests.unit.small_process import AT, CLOCK, LEASE, NO_ANSWER_YET, NOW, RECORDS, Acking, NotYet, Process, Request

TOPIC = "topic-id"
# How often each of these may happen in one story. A transaction is no accident, but there is one at most.
ACCIDENTS = ("crash", "expire", "move", "leases_end", "unanswered", "abort", "step")
Step = tuple[str, Any]


class World:
    """All of it."""

    def __init__(self, names: str = "AB", items: int = 3, **accidents: int) -> None:
        self.names, self.items = names, items
        self.wrong = ""
        self.left = {name: accidents.get(name, 0) for name in ACCIDENTS}
        self.all = {name: Process(name) for name in names}
        self.now = NOW
        self.broker = Broker(items)
        # --- what workers know ---
        self.ended: set[int] = set()  # items that a worker ended, whatever came of it
        self.acked: set[int] = set()  # and that was confirmed
        self.unknown: set[int] = set()  # or its outcome is not known
        self.refused: set[int] = set()  # or the worker got the error that it was not stored
        self.attempts: set[tuple[int, int]] = set()  # (item, attempt) that were handed out
        for name in names:
            self.join(name)
        first = names[0]
        for step in (self.given, self.read, self.take_over, self.send):
            step(first)
        self.arrives(0)
        self.answered(first)
        self._settle()

    @property
    def processes(self) -> dict[str, Process]:
        """Those that run."""
        return {name: process for name, process in self.all.items() if process.alive}

    def copied(self) -> bytes:
        """A copy of all that changes."""
        own = {name: value for name, value in vars(self).items() if name not in ("names", "items", "all")}
        return pickle.dumps((own, [process.copied() for process in self.all.values()]), -1)

    def become(self, copied: bytes) -> None:
        """Be as that copy."""
        own, processes = pickle.loads(copied)
        self.__dict__ |= own
        CLOCK.now = self.now
        for process, each in zip(self.all.values(), processes, strict=True):
            process.become(each)

    # --- one step ---

    def do(self, step: Step) -> str:
        """Do it. Returns what happened, in a sentence or two."""
        name, about = step
        if name in ACCIDENTS and not (name in ("expire", "abort") and self._of_the_dead(about)):
            self.left[name] -= 1
        if name == "end_unanswered":
            self.left["unanswered"] -= 1
        sentence: str = getattr(self, name)(about)
        self._settle()
        return sentence

    def _of_the_dead(self, member: str) -> bool:
        member = member or (self.broker.pending.member if self.broker.pending else "")
        return member not in {process.member for process in self.processes.values()}

    def _settle(self) -> None:
        """What follows at once: acks whose commit was answered, or whose partition is gone, return to their workers."""
        for process in self.processes.values():
            for ack in list(process.acking):
                if ack.partition.saved >= ack.version:
                    process.acking.remove(ack)
                    self._confirmed(ack.offset)
                elif ack.partition.dropped:
                    process.acking.remove(ack)
                    known = isinstance(process.queue._not_stored_in([ack.partition]), LeaseLost)
                    (self.refused if known else self.unknown).add(ack.offset)
            process.tidy()

    def _confirmed(self, item: int) -> None:
        if item in self.acked:
            self.wrong = f"The ack of item {item} is confirmed twice."
        self.acked.add(item)

    # --- workers ---

    def claim(self, name: str) -> str:
        process = self.processes[name]
        process.claimed = process.queue._choose(1)
        process.session.save([partition for partition, _ in process.claimed])
        chosen = [offset for _, claimed in process.claimed for offset in claimed.offsets]
        return f"{name} claims item {chosen[0]}." if chosen else f"{name} claims, and finds nothing."

    def hand_out(self, name: str) -> str:
        process = self.processes[name]
        items = process.returned(lambda: process.queue._hand_out(process.claimed, LEASE))
        process.claimed = []
        for item in items:
            number = item.offset
            if (
                number in self.acked and self.broker.members.get(process.member) == process.epoch
            ):  # else it is out, and does not know
                self.wrong = f"Item {number} is handed out again, after its ack was confirmed."
            if (number, item.attempt) in self.attempts:
                self.wrong = f"Item {number} is handed out as attempt {item.attempt}, and so it was before."
            self.attempts.add((number, item.attempt))
            process.held.append(item)
        if items:
            return f"A worker in {name} gets item {items[0].offset}, attempt {items[0].attempt}."
        return f"The claim in {name} returns nothing: the partition is gone."

    def ack(self, which: tuple[str, int]) -> str:
        process = self.processes[which[0]]
        item = process.held.pop(which[1])
        try:
            process.queue.ack(item)
        except LeaseLost as error:
            return (
                f"A worker in {process.name} acks item {item.offset}, and is refused: {error.facts.get('what', error)}"
            )
        own = process.partition
        assert own is not None
        process.acking.append(Acking(item.offset, own, own.version))
        self.ended.add(item.offset)
        return f"A worker in {process.name} acks item {item.offset}, which it got as attempt {item.attempt}."

    def leases_end(self, _: str) -> str:
        self.now = CLOCK.now = self.now + LEASE + 1
        return f"{LEASE:g} seconds pass, and leases end."

    def crash(self, name: str) -> str:
        process = self.all[name]
        self.unknown |= {ack.offset for ack in process.acking}
        self.all[name] = Process(name, process.life + 1)
        self.all[name].alive = False
        return f"{name} is killed."

    def start(self, name: str) -> str:
        self.all[name].alive = True
        return f"{name} is started again."

    # --- a transaction: outputs of an item, and its ack ---

    def step(self, which: tuple[str, int]) -> str:
        process = self.processes[which[0]]
        item = process.held.pop(which[1])
        says = f"In {process.name} a transaction begins, with the outputs and the ack of item {item.offset}"
        try:
            partition = process.queue._held(item)
        except LeaseLost:
            return f"{says}. It is refused: the lease is lost."
        process.ending = Ending([Out("results", b"")], [Ack(partition, item.offset, item.lease)])
        if process.endings._begin(process.ending):
            process.stepping, process.stage = item, "begun"
        return f"{says}."

    def freeze(self, name: str) -> str:
        process = self.processes[name]
        assert process.ending is not None
        try:
            parts, epoch = process.endings.transactions._freeze(process.ending.offsets(), NOW)
        except NotYet:
            return f"The transaction in {name} waits for the commit that is under way."
        except KafkaException:
            return self._aborted(process)
        process.frozen = Request(process.member, epoch, (parts[0].offset, parts[0].metadata))
        process.stage = "frozen"
        self.ended.add(process.ending.acks[0].offset)
        return f"The partition in {name} is frozen, with the state that the transaction commits."

    def offsets_arrive(self, name: str) -> str:
        process = self.processes[name]
        assert process.frozen is not None and process.ending is not None
        if not self.broker.pend(process.frozen, process.ending.acks[0].offset):
            return self._aborted(process)
        process.stage = "asked"
        return f"The offsets of the transaction of {name} are pending at the broker."

    def _aborted(self, process: Process) -> str:
        """It is tried again, if the lease still holds, with the group's metadata of then."""
        ending = process.ending
        assert ending is not None
        process.endings._apply(False, [ending], ending.offsets())
        process.stage = "begun" if process.endings._begin(ending) else ""
        return f"The transaction of {process.name} is aborted."

    def end_arrives(self, _: str) -> str:
        request, item = self.broker.commit()
        for process in self.processes.values():
            if process.frozen is request and process.stage == "asked":
                process.stage = "ended"
        return f"The broker commits the transaction of {request.member[0]}: the outputs of item {item} are written."

    def abort(self, _: str) -> str:
        return f"The broker aborts the transaction of {self.broker.abort().member[0]}: its time is up."

    def end_answered(self, name: str) -> str:
        process = self.processes[name]
        assert process.ending is not None
        process.endings._apply(True, [process.ending], process.ending.offsets())
        process.stage = ""
        self._confirmed(process.ending.acks[0].offset)
        return f"{name} hears that its transaction is committed."

    def end_unknown(self, name: str) -> str:
        process = self.processes[name]
        assert process.ending is not None
        process.endings._apply(None, [process.ending], process.ending.offsets())
        self.unknown.add(process.ending.acks[0].offset)
        process.stage = ""
        return f"{name} does not hear how its transaction ended, and reads the state again."

    end_unanswered = end_unknown

    # --- commits ---

    def send(self, name: str) -> str:
        process = self.processes[name]
        process.sent = process.commits.send(process.commits.due(NOW)[0], NOW)
        process.request = Request(process.member, process.epoch, process.sent[0].state)
        process.answer = NO_ANSWER_YET
        self.broker.network.append(process.request)
        return f"{name} sends its state: {words(process.request.state)}."

    def arrives(self, at: int) -> str:
        request = self.broker.network.pop(at)
        code = self.broker.store(request)
        for process in self.processes.values():
            if process.request is request:
                process.answer = code
        who = request.member[0]
        return f"The broker {f'refuses the state of {who}' if code else f'stores the state of {who}'}."

    def vanishes(self, at: int) -> str:
        return f"A state that {self.broker.network.pop(at).member[0]} sent, and does not wait for, is lost on its way."

    def answered(self, name: str) -> str:
        process = self.processes[name]
        errors = {AT: KafkaError(process.answer)} if process.answer else {}
        self._answer(process, errors, True)
        return f"{name} hears that its state {'was refused' if errors else 'is stored'}."

    def unanswered(self, name: str) -> str:
        self._answer(self.processes[name], {AT: KafkaError(KafkaError._TIMED_OUT)}, False)
        return f"{name} does not hear what became of its state."

    def _answer(self, process: Process, errors: dict[Any, KafkaError], first: bool) -> None:
        sent, process.sent, process.request, process.answer = process.sent, [], None, NO_ANSWER_YET
        process.commits.answered(sent, errors, NOW, first)

    # --- the group ---

    def join(self, name: str) -> str:
        process = self.processes[name]
        process.epoch = self.broker.join(process.member)
        return f"{name} joins the group."

    def given(self, name: str) -> str:
        session = self.processes[name].session
        session.group = None
        session.drop(AT, RECREATED)
        session.load([AT])
        return f"The group gives the partition to {name}."

    def read(self, name: str) -> str:
        loading = self.processes[name].session.loadings[AT]
        seen = Seen(TOPIC, 0, self.items, *(self.broker.stored or (None, "")))
        loading.ledger = ledger_from(seen, "raise", "")
        return f"{name} reads the stored state: {words(self.broker.stored)}."

    def take_over(self, name: str) -> str:
        session = self.processes[name].session
        partition = session.take_over(session.loadings[AT], 0)
        if partition is None:
            return f"{name} does not take the partition over."
        partition.changed()
        partition.awaited = partition.version
        partition.window.position = begin = partition.window.target()
        partition.arrive(RECORDS[begin : self.items])
        partition.end_seen(self.items)
        return f"{name} takes the partition over, with epoch {partition.ledger.epoch}."

    def move(self, member: str) -> str:
        self.broker.next_owner = member
        return f"The group wants to give the partition to {member[0]}."

    def leave(self, name: str) -> str:
        own = self.processes[name].partition
        assert own is not None
        own.leaving = True
        return f"{name} has to give the partition up, and waits for its workers."

    def give_back(self, name: str) -> str:
        process, own = self.processes[name], self.processes[name].partition
        assert own is not None
        own.give_back(None)
        own.uncount()
        own.awaited = own.version
        process.gave_back = True
        return f"{name} gives back what no worker has."

    def give_up(self, name: str) -> str:
        process = self.processes[name]
        process.session.drop(AT, "this partition went to another process")
        process.gave_back = False
        process.epoch = self.broker.moved(process.member)
        return f"{name} gives the partition up."

    def expire(self, member: str) -> str:
        self.broker.put_out(member)
        return f"The group puts {member[0]} out: it was silent for its session."

    def lost(self, name: str) -> str:
        process = self.processes[name]
        process.session.group = None
        for at in process.session.mine():
            process.session.drop(at, "this process was out of its group")
        process.epoch, process.gave_back = 0, False
        return f"{name} hears that it is out of the group, and drops the partition."

    def key(self) -> Any:
        """Equal for worlds that go on alike."""
        known = [sorted(some) for some in (self.ended, self.acked, self.unknown, self.refused)]
        left = (sorted(self.attempts), list(self.left.values()), self.now)
        return self.broker.key(), known, left, [process.key() for process in self.all.values()]
