"""The command `kq`: what is typed becomes a call of one of the functions below, which returns the exit status.

In:  arguments. Out: answers on stdout, notices and errors on stderr. Exit status: 0 success, 1 nothing done, 2 error, 130 Ctrl-C.
The short commands are here. Those in `MODULES` are modules beside this one, each with `arguments(parser)` and `run(args)`. The
first line of a module's docstring is its help, and its EPILOG, if it has one, is the end of `kq NAME --help`.
A command imports what it needs when it runs, so that `kq --help` is quick.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from kqlib import errors
from kqlib.command.output import answer, tell
from kqlib.errors import KqError, NotAllowed, NotNow, QueueDeleted, Unreachable
from kqlib.text import count, near

MODULES = ("games", "queue", "virtual", "pipeline", "metrics", "crash", "gameday", "size", "new")
EXAMPLE = """\
example: three brokers that several notebooks share
  eval "$(kq up --brokers 3)" && kq lab
"""
COPY = """\
diff ends with 0: as planned, 1: differs, 2: an error. Nothing is ever shrunk
or deleted.

to move a queue: copy while it works; stop its programs; copy again, with
--state; the same for its dead letters
  kq topics copy football football --to kafka-2:9092
  kq topics copy football football --to kafka-2:9092 --state drupal-eu
  kq topics copy football.dead football.dead --to kafka-2:9092 --state drupal-eu
A copy that was killed goes on when the same command runs again.
"""
BROKEN = (errors.BrokerDied, errors.SparkDied, errors.JarMismatch, errors.JarsMissing)
LOST = (errors.LedgerCorrupt, errors.LedgerLost, errors.NotInTime)
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 and the signal's number, as shells have it

# --- the commands: the first line of each is its help -----------------------------------------------------------------


def lab(args: argparse.Namespace) -> int:
    """Start JupyterLab with your own copies, in my/."""
    from kqlib.workshop import copies, jupyter
    from kqlib.workshop.cluster import up

    if args.update:
        changes = copies.update(jupyter.checkout())
        print("\n".join(changes) or "Your copies in my/ have this edition already.")
        return 0 if changes else 1
    running, named = up.find(), os.environ.get("KQ_BOOTSTRAP")
    if named:
        tell(f"Notebooks will use the cluster at {named} (KQ_BOOTSTRAP).")
    elif running:
        tell('The cluster of `kq up` is used by notebooks only after: eval "$(kq up)"')
    return jupyter.become(args.notebook, not args.no_browser, args.rest)


def up(args: argparse.Namespace) -> int:
    """Keep a Kafka running for several notebooks."""
    from kqlib.workshop.cluster import up as cluster

    running = cluster.start(args.brokers or 1)
    brokers = count(running.brokers, "broker")
    if args.brokers not in {None, running.brokers}:
        tell(f"kq: a cluster of {brokers} runs already, and it stays as it is; `kq down` ends it")
        return 1
    tell(f'Kafka is running ({brokers}) until `kq down`. Notebooks use it after this line, or eval "$(kq up)":')
    print(running.export)
    return 0


def down(args: argparse.Namespace) -> int:
    """End the Kafka that `kq up` keeps."""
    from kqlib.workshop.cluster import up as cluster

    was = cluster.find()
    print("Kafka has ended." if cluster.stop() else "Nothing runs.")
    if was and was.bootstrap == os.environ.get("KQ_BOOTSTRAP"):
        tell("KQ_BOOTSTRAP still names it: unset KQ_BOOTSTRAP")
    return 0


def status(args: argparse.Namespace) -> int:
    """Show which cluster is used, where it is, and how it is."""
    from dataclasses import asdict

    from kqlib.workshop.cluster import up as cluster

    found = cluster.status()
    none = "Nothing runs. Start a cluster with `kq up`, or set KQ_BOOTSTRAP."
    answer(args, asdict(found) if found else None, found or none)
    return 0 if found else 1


def doctor(args: argparse.Namespace) -> int:
    """Check this machine and its queues; say how to fix each ✗."""
    from kqlib.workshop.doctor import rights, run

    if args.rights or args.site or args.acl:
        return rights.run(args)
    return run(args.json)


def progress(args: argparse.Namespace) -> int:
    """Show exercises passed, predictions made and minutes."""
    from kqlib.workshop import checks

    found = checks.progress(args.files or None)
    print(found.as_json() if args.json else found)
    return 0


def topics(args: argparse.Namespace) -> int:
    """Compare topics with a plan, apply the plan, or copy a topic."""
    from kqlib.topics import Plan
    from kqlib.workshop.cluster.up import current

    if not args.file:
        what = args.what or "diff"
        raise NotAllowed(
            "which topic? kq topics copy SRC DST" if what == "copy" else f"which plan? kq topics {what} FILE"
        )
    if args.what == "copy":
        return _copy(args)
    if extra := [name for name in ("target", "state", "to", "to_config") if getattr(args, name)]:
        raise NotAllowed(f"{extra[0].replace('_', '-')} goes with kq topics copy")
    plan = Plan.read(args.file)
    if args.what == "show":
        print(plan.show())
        return 0
    with current() as cluster:
        if args.what == "diff":
            diff = plan.diff(cluster)
            print(diff)
            return int(bool(diff.waits or diff.refusals or diff.stays))
        plan.apply(cluster)
        print(f"Done: every topic is as planned{', but for the lines marked ≠' if plan.diff(cluster).stays else ''}.")
    return 0


def _copy(args: argparse.Namespace) -> int:
    from kqlib.kafka import reach, settings
    from kqlib.queue import copying, moving
    from kqlib.workshop.cluster.up import current

    if not args.target:
        raise NotAllowed("where to? kq topics copy SRC DST")
    own = settings.read(Path(args.to_config).expanduser()) if args.to_config else {}
    inside = own.pop("bootstrap.servers", None)
    address = args.to or inside
    if args.to_config and not address:
        raise NotAllowed(f"which cluster? {args.to_config} has no bootstrap.servers: name it with --to ADDRESS")
    with current() as source:
        target = reach(address, own) if address else source
        with target:
            copied = copying.copy(source, args.file, target, args.target)
            print(f"{count(copied, 'record')} copied from '{args.file}' to '{args.target}'.")
            if args.state:
                moved = moving.move(source, args.file, target, args.target, args.state)
                parts = count(moved.partitions, "partition")
                print(f"Site '{args.state}' has its state there: {count(moved.open, 'item')} in hand, {parts}.")
    return 0


def kafka(args: argparse.Namespace) -> int:
    """Run one of Kafka's own tools, with its own arguments."""
    from kqlib.kafka import tools
    from kqlib.workshop.cluster.up import current

    if not args.tool:
        print(_listed(tools.ASKING, tools.OTHER))
        return 0
    tool = args.tool.removesuffix(".sh").removeprefix("kafka-")  # as Kafka's own documentation writes it
    asks = tool in tools.ASKING and not any(word.startswith(tools.ADDRESSED) for word in args.rest)
    cluster = current() if asks else None
    return tools.become(tool, args.rest, cluster.bootstrap if cluster else None, cluster._own if cluster else {})


def _listed(asking: Iterable[str], other: Iterable[str]) -> str:
    def paragraph(names: Iterable[str]) -> str:
        shape: dict[str, Any] = {"initial_indent": "  ", "subsequent_indent": "  ", "break_on_hyphens": False}
        return textwrap.fill(", ".join(sorted(names)), 100, **shape)

    return (
        "Kafka's own tools: kq kafka TOOL ARGS…, for example kq kafka topics --list; TOOL --help shows a tool's arguments.\n"
        f"\nwith the address of the current cluster filled in:\n{paragraph(asking)}\n"
        f"\nfor files, or with an address that you give:\n{paragraph(other)}"
    )


# --- what is typed ----------------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """A parser of `kq` or of one of its commands: it takes --config, and names the word that was probably meant."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **(how | {"allow_abbrev": False}))
        text = "settings of the Kafka client (default: KQ_KAFKA_CONFIG)"
        self.add_argument("--config", metavar="FILE", help=text)
        self.register("action", "parsers", _Words)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"there is no {unknown[0]!r} here{near(unknown[0], self._option_string_actions)}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(each) for each in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"there is no command {value!r}{near(value, known)}")
        meant = near(str(value), known) or f"; choose from {', '.join(known)}"
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{meant}")

    def error(self, message: str) -> NoReturn:
        super().error(message if "; did you mean " in message else f"{message}; see {self.prog} --help")


class _Words(argparse._SubParsersAction):
    """A word's own help begins with what the list of words says about it, unless it has a text of its own."""

    def add_parser(self, name: str, **how: Any) -> Any:
        text = how["help"]
        how.setdefault("description", f"{text[0].upper()}{text[1:].rstrip('.')}.")
        return super().add_parser(name, **how)


def parsers() -> tuple[Parser, dict[str, argparse.ArgumentParser]]:
    """The parser of `kq`, and each command's."""
    shape = argparse.RawDescriptionHelpFormatter
    text = "A Kafka queue, learned by building it."
    whole = Parser("kq", usage="kq COMMAND …", description=text, epilog=EXAMPLE, formatter_class=shape)
    whole.add_argument("--version", action="store_true", help="show which kqlib this is and exit")
    under = whole.add_subparsers(prog="kq", title="commands", metavar="COMMAND", dest="command")
    made: dict[str, argparse.ArgumentParser] = {}

    def named(name: str, text: str, run: Callable[[argparse.Namespace], int], **more: Any) -> argparse.ArgumentParser:
        made[name] = under.add_parser(name, help=text, **more)
        made[name].set_defaults(run=run)
        return made[name]

    def command(run: Callable[[argparse.Namespace], int], **more: Any) -> Callable[..., argparse.Action]:
        return named(run.__name__, run.__doc__ or "", run, **more).add_argument

    for_programs = {"action": "store_true", "help": "print JSON, for programs"}
    add = command(lab, epilog="What follows -- goes to JupyterLab: kq lab 03 -- --port=9999")
    add("notebook", nargs="?", metavar="NOTEBOOK", help="its number, name or file (default: 00)")
    add("--update", action="store_true", help="only bring a newer edition into my/, and keep your own cells")
    add("--no-browser", action="store_true", help="only print the address")
    add = command(up, epilog='It prints one line for the shell: eval "$(kq up)"')
    add("--brokers", type=int, choices=range(1, 10), metavar="N", help="how many, 1 to 9 (default: 1)")
    command(down)
    command(status)("--json", **for_programs)
    add = command(doctor, epilog="--rights ends with 1 if a right is missing.")
    add("--json", **for_programs)
    add(
        "--rights", metavar="QUEUE", help="print what this user may do in a queue, verb by verb, and check nothing else"
    )
    add("--site", metavar="SITE", help="with --rights: for which site (default: KQ_SITE, else default)")
    add("--acl", metavar="USER", help="with --rights: only print the commands that grant a user these rights")
    add = command(progress)
    add(
        "files",
        nargs="*",
        metavar="FILE",
        help="what other people's `kq progress --json` printed, or a folder of such files; a column a person",
    )
    add("--json", **for_programs)
    usage = "kq topics {diff,apply,show} FILE\n       kq topics copy SRC DST [--state SITE] [--to ADDRESS] [--to-config FILE]"
    add = command(topics, epilog=COPY, formatter_class=shape, usage=usage)
    does = "print what would change, change it, list the planned topics, or copy a topic's records"
    add("what", nargs="?", choices=("diff", "apply", "show", "copy"), help=does)
    add("file", nargs="?", metavar="FILE", help="the plan, as Plan.write makes it; with copy: the topic SRC")
    add("target", nargs="?", metavar="DST", help="with copy: the topic that gets the records, empty at first")
    add("--state", metavar="SITE", help="with copy: then write this site's state for DST; its processes are stopped")
    add("--to", metavar="ADDRESS", help="with copy: the cluster of DST (default: the same one)")
    add("--to-config", metavar="FILE", help="with copy: settings of a client of that cluster")
    for name in MODULES:
        module = import_module(f"kqlib.command.{name}")
        how = {"epilog": getattr(module, "EPILOG", None), "formatter_class": shape}
        module.arguments(named(name, (module.__doc__ or "").split("\n", 1)[0], module.run, **how))
    add = command(kafka, epilog="Everything after TOOL goes to the tool as it is.", usage="kq kafka [TOOL [ARGS…]]")
    add("tool", nargs="?", metavar="TOOL", help="its name; without one, all of them are listed")
    return whole, made


def _split(words: Sequence[str]) -> tuple[list[str], str | None, list[str]]:
    """What kq reads, the file of --config, and what another program gets: behind a Kafka tool's name, or behind `--`."""
    mine, file, left = list[str](), None, list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            another = mine[:1] in (["lab"], ["crash"]) or mine[:2] == ["queue", "work"]
            return (mine, file, left) if another else ([*mine, word, *left], file, [])
        if word == "--config" and left:
            file = left.pop(0)
        elif word.startswith("--config="):
            file = word.partition("=")[2]
        else:
            mine.append(word)
            if mine[0] == "kafka" and len(mine) == 2 and not word.startswith("-"):
                return mine, file, left
    return mine, file, []


def _run(words: Sequence[str]) -> int:
    mine, file, rest = _split(words)
    whole, _ = parsers()
    args = whole.parse_args(mine)
    if args.version:
        from importlib.metadata import version

        print(f"kq {version('kqlib')}")
        return 0
    if not words:
        whole.print_help()
        return 0
    if args.command is None:
        whole.error("which command?")
    args.rest = rest
    if file is not None:
        _use(Path(file))
    code: int = args.run(args)
    return code


def _use(file: Path) -> None:
    """From here on KQ_KAFKA_CONFIG names this file. It is checked before anything is done."""
    from kqlib.kafka.cluster import check

    path = file.expanduser().absolute()  # some commands change directory
    check(path)
    os.environ["KQ_KAFKA_CONFIG"] = str(path)


def _next(text: str, error: Exception, words: Sequence[str]) -> str:
    """The end of an error's text: the next command to type, unless the text names one."""
    if re.search(r"\bkq [a-z]|\bpip install |\b[Dd]id you mean ", text):
        return ""
    if isinstance(error, Unreachable | NotNow):
        command = "kq status"
    elif isinstance(error, QueueDeleted):
        command = "kq queue create --help"
    elif isinstance(error, (OSError, *BROKEN, *LOST)) and not isinstance(error, FileNotFoundError):
        command = "kq doctor"
    else:
        command = f"{_named(words)} --help"
    if command == _named(words):  # it sends nobody to itself
        return ""
    if "\n" in text:  # the last line is one of a log
        return f"\nSee {command}"
    return f" See {command}" if text.endswith((".", "?")) else f"; see {command}"


def _named(words: Sequence[str]) -> str:
    """The command that these words name, as far as there is one: 'kq queue put'."""
    parser: argparse.ArgumentParser = parsers()[0]
    for word in words:
        under = next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None)
        parser = under.choices.get(word, parser) if under else parser
    return parser.prog


def _writable(stream: Any) -> Any:
    """A stream that takes all text: a terminal may not know –, and Python has None for a stream that is closed (`kq … >&-`)."""
    if stream is None:
        return open(os.devnull, "w")
    stream.reconfigure(errors="backslashreplace")
    return stream


def main(argv: Sequence[str] | None = None) -> int:
    """Run `kq` with these arguments (None: those that were typed) and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    if argv is None:
        sys.stdout, sys.stderr = _writable(sys.stdout), _writable(sys.stderr)
    try:
        try:
            return _run(words)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # `kq kafka | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except KqError as error:
        text, cause = str(error), error  # type: str, Exception
    except OSError as error:  # a file, a disk, an address: what the system says, without its number
        from kqlib.runtime import places

        text, cause = places.words(error), error
    tell(f"kq: {text}{_next(text, cause, words)}")
    return 2


if __name__ == "__main__":
    sys.exit(main())
