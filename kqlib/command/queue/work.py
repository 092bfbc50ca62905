"""`kq queue work QUEUE -- CMD`: a command is run for each item.

In:  the item's data is the command's stdin. Its environment has KQ_ITEM_ID, KQ_ITEM_KEY, KQ_ITEM_ATTEMPT, KQ_ITEM_CREATED, KQ_QUEUE,
KQ_SITE, and KQ_HEADER_<NAME> for each header (letters and digits; the rest becomes _).
Out: exit code 0 acks. Another code tries again later, each time after twice the wait. When the attempts are used up, the item is
buried, with the last line of stderr as the reason.
SIGTERM and Ctrl-C wait for the commands that run; a second Ctrl-C ends them. If kq itself is killed, its commands run on. Their
items come again when the site's session is over, as with any killed worker.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO

from kqlib.command.output import tell
from kqlib.command.queue.site import opened, say_if_new
from kqlib.errors import NotAllowed
from kqlib.queue import Item, Queue, Retry
from kqlib.text import as_json

LONGEST_WAIT = 300.0  # seconds between two attempts


class CommandError(Exception):
    """A command ended with another exit code than 0; its text is the reason in a dead letter."""


def queue_work(args: argparse.Namespace) -> int:
    """Work until SIGTERM, Ctrl-C, or nothing is left."""
    if not args.rest:
        raise NotAllowed("which command? As in: kq queue work football -- ./score.sh")
    if not shutil.which(args.rest[0]):
        raise NotAllowed(f"there is no command {args.rest[0]!r} that could be run. Nothing was claimed")
    with opened(args) as site:
        say_if_new(site, args.queue)
        queue = site.queue(args.queue, on_lost=args.on_lost)
        commands = Commands(queue, args.rest)
        attempts = _attempts(queue, args.max_attempts)
        retry = Retry.exponential(args.retry, cap=LONGEST_WAIT, jitter=0.2, attempts=attempts)
        until = "empty" if args.until_empty else None
        try:
            worked = queue.work(commands.run, args.threads, retry, until=until)
        except KeyboardInterrupt:  # the second one
            commands.end()
            raise
    if args.json:
        print(as_json({name: getattr(worked, name) for name in ("done", "released", "buried", "lost")}))
    else:
        tell(f"kq: {worked}")
    return 1 if worked.buried or worked.lost else 0


def _attempts(queue: Queue, asked: int | None) -> int | None:
    """The attempts that were asked for. They cannot be more than the queue's own."""
    most = queue.terms.max_attempts
    if asked and most and asked > most:
        why = f"'{queue.name}' buries after {most} attempts for site '{queue.site.name}'"
        raise NotAllowed(f"{why}: --max-attempts can only be lower, not {asked}")
    return asked


class Commands:
    """The command that is run for each item, and its processes that run now."""

    def __init__(self, queue: Queue, words: list[str]) -> None:
        self.queue, self.words = queue, words
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, item: Item) -> None:
        """Run it for one item; `CommandError` unless it ends with 0."""
        try:
            child = subprocess.Popen(  # not by the reaper: it reads our stdin, and its output goes to our terminal
                self.words,
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ | environment(item, self.queue.site.name),
                start_new_session=True,  # Ctrl-C is for kq, which waits for it
            )
        except OSError as error:  # a script without its first line, headers that are too long for an environment
            raise CommandError(f"{self.words[0]} cannot be run ({error.strerror})") from None
        self._running.add(child)
        assert child.stdin is not None and child.stderr is not None
        last = LastLine(child.stderr)
        try:
            with suppress(BrokenPipeError), child.stdin:  # it need not read its stdin
                child.stdin.write(item.data or b"")
            code = child.wait()
        finally:
            self._running.discard(child)
        if code:
            how = f"exit {code}" if code > 0 else f"signal {-code}"
            raise CommandError(f"{how}: {last.text()}".rstrip(": "))

    def end(self) -> None:
        """End the processes that run, and all that they started."""
        for child in list(self._running):
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)


class LastLine:
    """The last line of a stream that is not empty. The stream is passed on to our stderr."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._last = stream, b""
        self._thread = threading.Thread(target=self._pass_on, name="kq-stderr", daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        with self._stream:
            for line in self._stream:
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()
                self._last = line.strip() or self._last

    def text(self) -> str:
        """The line, when the command has ended. A process that it left running may keep the stream open."""
        self._thread.join(0.5)
        return self._last.decode(errors="replace")


def environment(item: Item, site: str) -> dict[str, str]:
    """The environment variables of a command. A name or value that no environment takes is left out."""
    known = {
        "KQ_ITEM_ID": item.id,
        "KQ_ITEM_ATTEMPT": str(item.attempt),
        "KQ_ITEM_CREATED": item.created.isoformat(timespec="milliseconds"),
        "KQ_QUEUE": item.queue,
        "KQ_SITE": site,
    }
    more = {"KQ_ITEM_KEY": item.key}
    more |= {f"KQ_HEADER_{re.sub('[^A-Z0-9]', '_', name.upper())}": value for name, value in item.headers.items()}
    return known | {
        name: os.fsdecode(value) for name, value in more.items() if value is not None and b"\0" not in value
    }
