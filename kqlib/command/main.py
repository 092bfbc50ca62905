"""The command `kq`: what is typed becomes a call of one of the functions below; each returns its exit code.

In:  arguments. Out: answers on stdout, notices and errors on stderr; exit 0 well, 1 a plain no, 2 an error, 130 Ctrl-C.
What a command does is in its room (`up`, `doctor`, `topics`, …), imported when it is asked for: `kq --help` is there at once.
Commands with sub-commands or much to say (`queue`, `games`, …) are modules of `kqlib/command`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from kqlib.command import near, rooms
from kqlib.errors import KqError, NotAllowed

EXAMPLE = """\
example: three brokers that several notebooks share
  eval "$(kq up --brokers 3)" && kq lab
"""
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 and the signal's number, as shells have it

# --- the commands: the first line of each is its help -----------------------------------------------------------------


def lab(args: argparse.Namespace) -> NoReturn:
    """Open the notebooks in JupyterLab."""
    from kqlib.workshop import jupyter
    from kqlib.workshop.cluster import up

    running, named = up.find(), os.environ.get("KQ_BOOTSTRAP")
    if named:
        _tell(f"Notebooks will use the cluster at {named} (KQ_BOOTSTRAP).")
    elif running:
        _tell('The cluster of `kq up` is used by notebooks only after: eval "$(kq up)"')
    jupyter.become(args.notebook, not args.no_browser, args.rest)


def up(args: argparse.Namespace) -> int:
    """Keep a Kafka running for several notebooks."""
    from kqlib.workshop.cluster import up as room

    running = room.start(args.brokers or 1)
    if args.brokers not in {None, running.brokers}:
        _tell(f"kq: a cluster of {_count(running.brokers)} runs already, and it stays as it is; `kq down` ends it")
        return 1
    _tell(
        f'Kafka is running ({_count(running.brokers)}) until `kq down`. Notebooks use it after this line, or eval "$(kq up)":'
    )
    print(running.export)
    return 0


def down(args: argparse.Namespace) -> int:
    """End the Kafka that `kq up` keeps."""
    from kqlib.workshop.cluster import up as room

    was = room.find()
    print("Kafka has ended." if room.stop() else "Nothing runs.")
    if was and was.bootstrap == os.environ.get("KQ_BOOTSTRAP"):
        _tell("KQ_BOOTSTRAP still names it: unset KQ_BOOTSTRAP")
    return 0


def status(args: argparse.Namespace) -> int:
    """Show what runs, where, and how it is."""
    from dataclasses import asdict

    from kqlib.workshop.cluster import up as room

    seen = room.status()
    if args.json:
        print(json.dumps(asdict(seen) if seen else None, indent=1))
    else:
        print(seen or "Nothing runs. Start a cluster with `kq up`, or set KQ_BOOTSTRAP.")
    return 0 if seen else 1


def doctor(args: argparse.Namespace) -> int:
    """Check this machine and its queues, and say what to do for each ✗."""
    from dataclasses import asdict
    from itertools import chain

    from kqlib.workshop.doctor import Finding, findings, queues, rights

    if args.rights or args.site or args.acl:
        return rights.run(args)

    found: list[Finding] = []
    for finding in chain(findings(), queues.findings()):
        found.append(finding)
        if not args.json:
            print(finding, flush=True)
    if args.json:
        print(json.dumps([asdict(each) for each in found], indent=1, ensure_ascii=False))
    return min(sum(each.ok is False for each in found), 100)


def progress(args: argparse.Namespace) -> int:
    """Show which exercises were passed."""
    from kqlib.workshop import checks

    found = checks.progress(args.files or None)
    print(found.as_json() if args.json else found)
    return 0


def topics(args: argparse.Namespace) -> int:
    """Compare a cluster with a plan of topics, or make it so."""
    from kqlib.topics import Plan
    from kqlib.workshop.cluster import up as room

    plan = Plan.read(args.file)
    if args.what == "show":
        print(plan.show())
        return 0
    with room.current() as cluster:
        if args.what == "diff":
            diff = plan.diff(cluster)
            print(diff)
            return int(bool(diff.waits or diff.refusals or any(line.startswith("≠") for line in diff.lines)))
        plan.apply(cluster)
        print("Done: every topic is as planned.")
    return 0


def bench(args: argparse.Namespace) -> NoReturn:
    """Print what things cost on this machine."""
    _become("bench", args.rest)


def faults(args: argparse.Namespace) -> NoReturn:
    """Run the long tests, in which everything breaks."""
    _become("tests", ["faults"])


def _become(module: str, rest: list[str]) -> NoReturn:
    """Turn into one of the checkout's own programs, which is what `make` runs."""
    from kqlib.runtime import places

    repo = places.repo()
    if repo is None or not (repo / module / "__main__.py").exists():
        raise NotAllowed(
            f"`{module}` is in the checkout of kqlib, not in the installed package: run this in a checkout's directory"
        )
    os.chdir(repo)
    os.execv(sys.executable, [sys.executable, "-m", module, *rest])


def kafka(args: argparse.Namespace) -> int:
    """Run one of Kafka's own tools, with its own arguments."""
    from kqlib.kafka import tools
    from kqlib.workshop.cluster import up as room

    if not args.tool:
        print(_tools(tools.ASKING, tools.OTHER))
        return 0
    tool = args.tool.removesuffix(".sh").removeprefix("kafka-")  # as Kafka's own documentation writes it
    asks = tool in tools.ASKING and not any(word.startswith(tools.ADDRESSED) for word in args.rest)
    cluster = room.current() if asks else None
    return tools.become(tool, args.rest, cluster.bootstrap if cluster else None, cluster._own if cluster else {})


def _tools(asking: Iterable[str], other: Iterable[str]) -> str:
    def paragraph(names: Iterable[str]) -> str:
        return textwrap.fill(
            ", ".join(sorted(names)), 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )

    return (
        "Kafka's own tools: kq kafka TOOL ARGS…, for example kq kafka topics --list; TOOL --help tells a tool's arguments.\n"
        f"\nasked of the current cluster, whose address is filled in:\n{paragraph(asking)}\n"
        f"\nof files, or with an address of their own:\n{paragraph(other)}"
    )


def _count(brokers: int) -> str:
    return f"{brokers} broker{'s' * (brokers > 1)}"


def _tell(text: str) -> None:
    """A notice: stdout is for answers, which `eval` and pipes read."""
    print(text, file=sys.stderr, flush=True)


# --- what is typed ----------------------------------------------------------------------------------------------------


def parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser of `kq`, and each command's."""
    whole = argparse.ArgumentParser(
        "kq",
        usage="kq COMMAND …",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    whole.add_argument("--version", action="store_true", help="show which kqlib this is and exit")
    under = whole.add_subparsers(prog="kq", metavar="COMMAND", dest="command", help=argparse.SUPPRESS)
    made: dict[str, argparse.ArgumentParser] = {}

    def named(name: str, says: str, run: Callable[[argparse.Namespace], int], **more: Any) -> argparse.ArgumentParser:
        made[name] = under.add_parser(name, description=says, allow_abbrev=False, **more)
        made[name].set_defaults(run=run, rest=[])
        return made[name]

    def command(run: Callable[[argparse.Namespace], int], **more: Any) -> Callable[..., argparse.Action]:
        return named(run.__name__, run.__doc__ or "", run, **more).add_argument

    as_json = {"action": "store_true", "help": "for programs"}
    add = command(lab, epilog="What follows -- goes to JupyterLab: kq lab 03 -- --port=9999")
    add("notebook", nargs="?", metavar="NOTEBOOK", help="its number, name or file (default: 00)")
    add("--no-browser", action="store_true", help="only print the address")
    add = command(up, epilog='It prints one line for the shell: eval "$(kq up)"')
    add("--brokers", type=int, choices=range(1, 10), metavar="N", help="how many, 1 to 9 (default: 1)")
    command(down)
    command(status)("--json", **as_json)
    add = command(doctor, epilog="--rights ends with 1 if a right is missing.")
    add("--json", **as_json)
    add("--rights", metavar="QUEUE", help="instead: what this user may do in a queue, verb by verb")
    add("--site", metavar="SITE", help="with --rights: for which site (default: KQ_SITE, else default)")
    add("--acl", metavar="USER", help="with --rights: only print the commands that grant a user these rights")
    add = command(progress)
    add("files", nargs="*", metavar="FILE", help="what `kq progress --json` printed for others: a column each")
    add("--json", **as_json)
    add = command(
        topics, epilog="diff ends with 0: as planned, 1: differs, 2: an error. Nothing is ever shrunk or deleted."
    )
    add("what", choices=("diff", "apply", "show"), help="say what would change, do it, or list the planned topics")
    add("file", metavar="FILE", help="the plan, as Plan.write makes it")
    for name, room in rooms().items():
        room.arguments(named(name, (room.__doc__ or "").split("\n", 1)[0], room.run))
    add = command(bench, usage="kq bench [ROUNDS] [ROOM…]", epilog="Of the checkout: what `make bench` runs.")
    command(
        faults,
        epilog="Works only in a checkout: runs tests/faults whole. `make nightly` runs it in three parts: faults, storms, drivers.",
    )
    add = command(kafka, epilog="Everything after TOOL goes to the tool as it is.", usage="kq kafka [TOOL [ARGS…]]")
    add("tool", nargs="?", metavar="TOOL", help="its name; without one, all of them are listed")
    for parser in _every(whole):
        says = "settings of the Kafka client (default: KQ_KAFKA_CONFIG)"
        shown = says if parser is whole or not parser._subparsers else argparse.SUPPRESS
        parser.add_argument("--config", default=argparse.SUPPRESS, metavar="FILE", help=shown)
    lines = [f"  {name:<9} {parser.description}" for name, parser in made.items()]
    whole.description = "\n".join(["A Kafka queue, learned by building it.", "", "commands:", *lines])
    return whole, made


def _every(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """This parser, and those of all its sub-commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _every(each)


def _after_config(words: list[str], at: int) -> int:
    """The place behind `--config FILE`, if that stands at this place."""
    if words[at : at + 1] == ["--config"]:
        return min(at + 2, len(words))
    return at + any(word.startswith("--config=") for word in words[at : at + 1])


def _command_first(words: list[str]) -> list[str]:
    """`kq --config FILE status` as `kq status --config FILE`."""
    at = _after_config(words, 0)
    return [*words[at : at + 1], *words[:at], *words[at + 1 :]]


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """What kq reads, and what goes on untouched: what follows a Kafka tool's name, and `--` where another program is meant."""
    at = _after_config(words, 1)
    if words[:1] == ["kafka"] and len(words) > at and not words[at].startswith("-"):
        return words[: at + 1], words[at + 1 :]
    if words[:1] == ["bench"] and not {"-h", "--help"} & {*words}:
        return words[:at], words[at:]
    if (words[:1] == ["lab"] or (words[:1] == ["queue"] and words[at : at + 1] == ["work"])) and "--" in words:
        return words[: words.index("--")], words[words.index("--") + 1 :]
    return words, []


@contextmanager
def _config(file: str | None) -> Iterator[None]:
    """Inside of it KQ_KAFKA_CONFIG names this file, which is checked before anything is done."""
    if file is None:
        yield
        return
    from kqlib.kafka import cluster as kafka

    path = Path(os.path.expanduser(file)).absolute()  # some commands change directory
    before = os.environ.get("KQ_KAFKA_CONFIG")
    kafka.check(path)
    os.environ["KQ_KAFKA_CONFIG"] = str(path)
    try:
        yield
    finally:
        del os.environ["KQ_KAFKA_CONFIG"]
        os.environ |= {"KQ_KAFKA_CONFIG": before} if before is not None else {}


def _run(words: list[str]) -> int:
    whole, commands = parsers()
    words = _command_first(words)
    if not words:
        whole.print_help()
        return 0
    if not words[0].startswith("-") and words[0] not in commands:
        whole.error(f"there is no command {words[0]!r}{near(words[0], commands)}")
    mine, rest = _split(words)
    parser = _meant(commands.get(mine[0], whole), mine[_after_config(mine, mine[0] in commands) :])
    args, unknown = whole.parse_known_args(mine)
    if args.version:
        from importlib.metadata import version

        print(f"kq {version('kqlib')}")
        return 0
    if unknown:
        parser.error(f"there is no {unknown[0]!r} here{near(unknown[0], parser._option_string_actions)}")
    if parser is whole:  # `kq --` and the like
        whole.error("which command?")
    args.rest = rest
    with _config(getattr(args, "config", None)):
        code: int = args.run(args)
    return code


def _meant(parser: argparse.ArgumentParser, words: list[str]) -> argparse.ArgumentParser:
    """The parser of the sub-command that is meant, if this command has some."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and words and not words[0].startswith("-"):
            if words[0] not in action.choices:
                parser.error(f"there is no {words[0]!r} here{near(words[0], action.choices)}")
            found: argparse.ArgumentParser = action.choices[words[0]]
            return found
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run `kq` with these arguments (None: those that were typed) and return its exit code."""
    try:
        try:
            return _run(list(sys.argv[1:] if argv is None else argv))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # `kq kafka | head`: who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except KqError as error:
        _tell(f"kq: {error}")
    except OSError as error:  # a file, a disk, an address: what the system says, without its number
        _tell(f"kq: {': '.join(str(word) for word in (error.filename, error.strerror or error) if word)}")
    return 2


if __name__ == "__main__":
    sys.exit(main())
