"""The process that keeps the cluster and the game; and `ask`, by which a command asks it.

In:  a seed, how many faults, minutes, on the command line. Out: answers over a socket.
The cluster is that of `kq up`: one holder, one lock, one file. So all commands of `kq` find it, and `kq down` ends the game.
The file `gameday` beside up.json has the directory of the game: its socket, its plan, its logs.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kqlib.errors import KqError, NotAllowed
from kqlib.runtime import places
from kqlib.text import words
from kqlib.workshop.children import Children
from kqlib.workshop.cluster import Cluster, up
from kqlib.workshop.gameday.game import Game
from kqlib.workshop.gameday.system import AWAY, BROKERS, System

TURN = 0.2  # seconds
CHANGES = ("restart", "end")
VERBS = ("status", "answer", *CHANGES)
MODULES = (
    "kqlib.queue",
    "kqlib.virtual.node",
    "kqlib.virtual.client",
    "kqlib.virtual.outbox",
    "kqlib.workshop.gameday.system",
)
NONE = "no game runs: start one with `kq gameday start`"


def start(seed: int, faults: int, minutes: float) -> up.Running:
    """Start a cluster of three brokers and a game on it."""
    if up.find():
        raise NotAllowed(
            "a cluster runs already: first end it, a game with `kq gameday end`, that of `kq up` with `kq down`"
        )
    return up.start(3, [__name__, str(seed), str(faults), str(minutes)])


def ask(verb: str, *arguments: Any) -> Any:
    """Ask the game that runs."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(f"{_file().read_text(encoding='utf-8')}/game")
            asks = Connection(line.detach())
        with asks:
            asks.send((verb, *arguments))
            error, value = asks.recv()
    except (OSError, EOFError):
        raise NotAllowed(NONE) from None
    if error:
        raise NotAllowed(error)
    return value


def _file() -> Path:
    return places.state() / "gameday"


@contextmanager
def playing(cluster: Cluster, seed: int, faults: int, minutes: float) -> Iterator[Callable[[], None]]:
    """A system and a game while this block runs. Yields what is to be called again and again."""
    with (
        Children(modules=MODULES) as children,
        closing(System(cluster, children)) as system,
        socket.socket(socket.AF_UNIX) as server,
    ):
        server.bind(str(children.home / "game"))
        server.listen()
        server.settimeout(TURN)
        places.write_atomic(_file(), str(children.home))
        game, turning, over = Game(system, seed, faults, minutes), threading.Lock(), threading.Event()
        try:
            threading.Thread(target=keep_time, args=(game, turning, over), daemon=True).start()
            yield partial(answer, game, server, turning)
        finally:
            over.set()
            _file().unlink(missing_ok=True)


def keep_time(game: Game, turning: threading.Lock, over: threading.Event) -> None:
    """One turn of the clock after the other. While a broker hangs, a turn takes half a minute."""
    while not over.wait(TURN):
        try:
            with turning, suppress(*AWAY):
                game.turn()
        except Exception:
            if not over.is_set():  # else the game has closed its database and its clients
                raise


def answer(game: Game, server: socket.socket, turning: threading.Lock) -> None:
    """The answer to one command, if one asks. Those that change the system wait for the end of a turn."""
    try:
        line, _ = server.accept()
    except TimeoutError:
        return
    with Connection(line.detach()) as asks:
        try:
            verb, *arguments = asks.recv()
            with turning if verb in CHANGES else nullcontext():
                found = "", getattr(game, verb)(*arguments) if verb in VERBS else None
        except AWAY as error:
            found = words(error), None
        except (EOFError, OSError):  # the command was ended
            return
        try:
            asks.send(found)
        except OSError:
            return


if __name__ == "__main__":
    seed, faults, minutes, brokers = sys.argv[1:]
    game = partial(playing, seed=int(seed), faults=int(faults), minutes=float(minutes))
    try:
        up.hold(int(brokers), game, BROKERS)
    except KqError as reason:
        sys.exit(str(reason))
