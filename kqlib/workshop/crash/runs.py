"""`kq.crash`: a command is run again and again, with an accident at each of its requests to Kafka, and each run is judged.

In:  a command that reads KQ_TOPIC and writes KQ_RESULTS through KQ_BOOTSTRAP. Out: a `Report`.
The command runs twice without an accident first. That says which requests it makes, and whether they are the same each time.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, count
from queue import SimpleQueue
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.kafka import reading
from kqlib.runtime.notebook import display_handle
from kqlib.workshop.children import Children
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.cluster.embedded import START
from kqlib.workshop.crash.life import ACCIDENTS, Point, Run, Runner, Setup
from kqlib.workshop.crash.report import Report
from kqlib.workshop.crash.retriable import retriable
from kqlib.workshop.crash.verdict import KINDS, Id, Judge, last_number
from kqlib.workshop.wire.crossing import POLLS
from kqlib.workshop.wire.messages import Messages

FIXED = (  # kinds of requests whose number the work fixes
    *("Produce", "OffsetCommit", "TxnOffsetCommit", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"),
    *("InitProducerId", "ShareAcknowledge", "ShareFetch"),
)
MOST = 1_000  # items
ALLOWED = (*KINDS, "died")
TWICE = 50  # pairs of accidents, unless a sample is asked for
SIDES = ("before", "after")


def crash(
    command: Sequence[str],
    items: int = 4,
    *,
    accident: str = "kill",
    only: Iterable[str] = (),
    sample: int | None = None,
    seed: int = 0,
    every: bool = False,
    twice: bool = False,
    quiet: float = 3.0,
    pause: float = 20.0,
    takeover: bool = False,
    patient: bool = False,
    allow: Iterable[str] = (),
    item_of: Id = last_number,
    judge: Judge | None = None,
    at_once: int | None = None,
    progress: bool | None = None,
    points_only: bool = False,
    cluster: Cluster | None = None,
) -> Report:
    """Run a command with an accident at each of its requests, and judge each run: `kq.crash(["python", "worker.py"])`.

    accident: kill, stop (for `pause` seconds), drop-answer, cut or error. only: these points, like "Produce:2:after".
    sample, seed: only so many points, drawn at random. every: all kinds of requests. twice: a second accident after the first.
    quiet: seconds without work after which a run is over; KQ_PATIENCE multiplies them.
    patient: do not leave the group for a dead process.
    takeover: start a second worker while the first is stopped, and let the first wake up beside it.
    item_of: which item a result belongs to. judge: a function of items and results that returns complaints.
    at_once: runs side by side. cluster: one of yours, with that many wires; None starts one.
    """
    number = _whole("items", items, MOST)
    setup = Setup(_command(command), number, accident, quiet, pause, takeover, patient, item_of, judge)
    _check(setup, allow, sample, at_once)
    chosen: list[tuple[Point, ...]] = [tuple(map(Point.read, each.split("+"))) for each in only]
    begun = time.monotonic()
    with _runners(setup, at_once or os.cpu_count() or 1, cluster) as runners:
        for point in chain.from_iterable(chosen):
            runners[0].wire.number(point.api)  # an unknown kind is named before the command runs
        first, second = _baseline(runners)
        shared = sorted(first.ids & second.ids)
        in_turn = runners[:1] if shared else runners
        found = chosen or [(each,) for each in points_of(first, accident, runners[0].wire.messages, every)]
        points = found if chosen or twice or sample is None else _sampled(found, sample, seed)
        runs = [] if points_only else _all(in_turn, points, progress)
        if twice and not chosen:
            found = list(_pairs(runs))
            more = _sampled(found, TWICE if sample is None else sample, seed)
            runs += _all(in_turn, more, progress)
            points, found = points + more, points + found
    return Report(
        setup.command,
        setup.items,
        accident,
        tuple(allow),
        first,
        tuple(points),
        tuple(runs),
        left_out=len(found) - len(points),
        differs=_differs(first, second, every),
        shared=tuple(name for _, name in shared),
        seconds=time.monotonic() - begun,
    )


def points_of(run: Run, accident: str, messages: Messages, every: bool = False) -> list[Point]:
    """Where an accident can happen in such a run: at each request whose number the work fixes, or at each of all."""
    found = []
    for each in run.crossed:
        if each.api in FIXED or every:
            if accident == "error":
                found += [Point(each.api, each.nth, side, error) for side, error in retriable(each, messages)]
            else:
                sides = SIDES[1:] if accident == "drop-answer" else SIDES
                found += [Point(each.api, each.nth, side) for side in sides]
    return found


def _pairs(runs: Iterable[Run]) -> Iterator[tuple[Point, ...]]:
    """The points of each run's recovery, as a second accident after the first."""
    for run in runs:
        at = next((number for number, each in enumerate(run.crossed) if each.accident), len(run.crossed))
        for each in run.crossed[at + 1 :]:
            if each.api in FIXED:
                yield from ((*run.points, Point(each.api, each.nth, side)) for side in SIDES)


def _sampled(points: Sequence[tuple[Point, ...]], sample: int, seed: int) -> list[tuple[Point, ...]]:
    """So many of them, in their order."""
    chosen = sorted(random.Random(seed).sample(range(len(points)), min(sample, len(points))))
    return [points[each] for each in chosen]


def _baseline(runners: Sequence[Runner]) -> tuple[Run, Run]:
    """Two runs without an accident: side by side, or one after the other if they are in each other's way."""
    both = list(_side_by_side(runners, [("base-0", ()), ("base-1", ())]))
    if len(runners) > 1 and both[0].ids & both[1].ids:
        both = list(_side_by_side(runners[:1], [("alone-0", ()), ("alone-1", ())]))
    for run in both:
        if run.failed or run.verdict.lost:
            raise NotAllowed(_useless(run))
    return both[0], both[1]


def _useless(run: Run) -> str:
    """Why a command cannot be judged: it does not do its work even without an accident."""
    tail = "\n".join(run.output.strip().splitlines()[-12:])
    why = run.failed or f"{run.verdict} in KQ_RESULTS"
    if not any(each.api == "Produce" for each in run.crossed):
        why += "; it sent no Produce through KQ_BOOTSTRAP"
    if all(name != run.topic for _, name in run.ids) and not run.failed:
        why += "; it used another group than KQ_GROUP"
    return f"without any accident, {why}. The end of its output:\n{tail or '(no output)'}"


def _differs(first: Run, second: Run, every: bool) -> dict[str, tuple[int, int]]:
    """The kinds of requests with points of which one run had more than the other. The number of polls always differs."""
    one, other = first.counts, second.counts
    kinds = [api for api in one | other if (api in FIXED or (every and api not in POLLS)) and one[api] != other[api]]
    return {api: (one[api], other[api]) for api in sorted(kinds)}


def _all(runners: Sequence[Runner], points: Sequence[tuple[Point, ...]], progress: bool | None) -> list[Run]:
    """A run for each, with a progress bar."""
    named = [(f"{len(its)}-{number}", its) for number, its in enumerate(points)]
    with _bar(len(points), progress) as step:
        runs = []
        for run in _side_by_side(runners, named):
            runs.append(run)
            step()
    return runs


def _side_by_side(runners: Sequence[Runner], named: Sequence[tuple[str, tuple[Point, ...]]]) -> Iterator[Run]:
    """Runs in their order, as many at a time as there are runners. After an error or Ctrl-C those that are on end at once."""
    free: SimpleQueue[Runner] = SimpleQueue()
    for runner in runners:
        free.put(runner)

    def one(name: str, points: tuple[Point, ...]) -> Run:
        runner = free.get()
        try:
            return runner.run(name, points)
        finally:
            free.put(runner)

    with ThreadPoolExecutor(len(runners)) as pool:
        try:
            yield from pool.map(one, *zip(*named, strict=True)) if named else ()
        except BaseException:
            for runner in runners:
                runner.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _bar(total: int, progress: bool | None) -> Iterator[Callable[[], object]]:
    """A progress bar with the remaining time on a terminal; in a notebook a count, which is the same at the end of each run."""
    from tqdm import tqdm

    hidden = None if progress is None else not progress  # None: hidden where there is no terminal
    handle = None if progress is False else display_handle()
    with tqdm(total=total, desc="runs", unit="run", disable=True if handle else hidden, dynamic_ncols=True) as bar:
        done = count(1)

        def step() -> None:
            bar.update()
            if handle:
                handle.update({"text/plain": f"{next(done)} of {total} runs"}, raw=True)

        yield step


@contextmanager
def _runners(setup: Setup, number: int, cluster: Cluster | None) -> Iterator[list[Runner]]:
    """A runner for each wire of a cluster, and a directory for the output of each run."""
    with ExitStack() as stack:
        if cluster is None:
            cluster = stack.enter_context(crash_cluster(number))
        if not cluster.wires:
            raise NotAllowed("kq.crash needs a cluster with wires: kq.Cluster(wire=2)")
        if len(cluster.running) > 1 or cluster._own:
            raise NotAllowed("kq.crash needs a cluster of one broker without logins: kq.Cluster(wire=2)")
        children = stack.enter_context(Children())
        prefix = f"kq-crash-{secrets.token_hex(2)}"
        runners = [Runner(cluster, wire, children, setup, prefix) for wire in cluster.wires[:number]]
        yield [stack.enter_context(closing(runner)) for runner in runners]


def crash_cluster(number: int | None = None, config: dict[str, Any] | None = None) -> Cluster:
    """A cluster for runs: a wire for each core. The broker has made its own topics already; a first client would ask several times."""
    from kqlib.kafka.clients import Producer

    cluster = Cluster(wire=min(number or os.cpu_count() or 1, 9), config=config)
    Producer(cluster.client(transactional_id="kq-crash-warm")).init_transactions(START)
    reading.committed(cluster, "kq-crash-warm", "kq-crash-warm", [0])
    return cluster


# --- what was asked for -------------------------------------------------------------------------------------------------


def _command(command: Any) -> list[str]:
    if isinstance(command, str) or not command or not all(isinstance(each, str | os.PathLike) for each in command):
        raise NotAllowed(f"a command is a list of words, as in ['python', 'worker.py'], not {command!r}")
    words = [os.fspath(each) for each in command]
    if shutil.which(words[0]) is None:
        raise NotAllowed(f"there is no program {words[0]!r} that can be started")
    return words


def _whole(name: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise NotAllowed(f"{name} is a number from 1 to {most:,}, not {value!r}")
    return value


def _check(setup: Setup, allow: Iterable[str], sample: Any, at_once: Any) -> None:
    if setup.accident not in ACCIDENTS:
        raise NotAllowed(f"an accident is {', '.join(ACCIDENTS[:-1])} or {ACCIDENTS[-1]}, not {setup.accident!r}")
    if setup.takeover and setup.accident != "stop":
        raise NotAllowed("takeover needs accident='stop' (--accident stop)")
    for each in allow:
        if each not in ALLOWED:
            raise NotAllowed(f"what can be allowed is {', '.join(ALLOWED[:-1])} or {ALLOWED[-1]}, not {each!r}")
    if sample is not None:
        _whole("sample", sample, 100_000)
    if at_once is not None:
        _whole("at_once", at_once, 9)
    for name in ("quiet", "pause"):
        value = getattr(setup, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
            raise NotAllowed(f"{name} is a number of seconds from 0 to 3,600, not {value!r}")
