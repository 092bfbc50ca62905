"""Virtual queues over HTTP: serve, check, plan the topics.

In:  the data topic's name, an address. Out: a node that answers until it is stopped (`serve`); a plan in a file (`plan`); a line for
each case of the contract, and status 1 if one differs (`check`).
No token is ever typed: a process list shows what is typed. It stands in KQ_VIRTUAL_TOKEN, or in a file (`--tokens`).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

from kqlib.command.output import tell

FILES = 16_384  # enough for 10,000 requests at once, see `kqlib.virtual.request_limits`


def arguments(parser: argparse.ArgumentParser) -> None:
    """Define what can be typed after `kq virtual`."""
    under = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    text = "Run a node: it owns some of the partitions and serves their queues until Ctrl-C or SIGTERM."
    add = under.add_parser("serve", description=text, help="run a node").add_argument
    add("topic", metavar="TOPIC", help="the data topic; TOPIC.offsets and TOPIC.partitions belong to it")
    address = "the address to listen at (default: 127.0.0.1); any other one needs a token"
    add("--host", default="127.0.0.1", metavar="ADDRESS", help=address)
    add("--port", type=int, default=0, metavar="N", help="the port (default: a free one)")
    add("--advertise", metavar="URL", help="the address that clients use (default: the one it listens on)")
    tokens = "a file of tokens, each with verbs and a prefix of queues' names (docs/virtual.md)"
    add("--tokens", metavar="FILE", help=tokens)
    add("--tls", nargs=2, metavar=("CERT", "KEY"), help="files of a certificate and its key: answer over https")
    origin = "web pages of this origin may call the node, like https://team.example (default: none); repeatable"
    add("--allow-origin", action="append", default=[], metavar="ORIGIN", help=origin)
    host = "a further host name in requests, besides its own and localhost; repeatable"
    add("--allow-host", action="append", default=[], metavar="NAME", help=host)
    text = "Write a plan of the three topics; `kq topics apply FILE` makes them."
    add = under.add_parser("plan", description=text, help="write a plan of the topics").add_argument
    add("topic", metavar="TOPIC", help="the data topic")
    add("file", metavar="FILE", help="where to write it")
    add("--partitions", type=int, default=6, metavar="N", help="of the data topic, for ever (default: 6)")
    text = "Ask a node for all that docs/virtual.md and data/virtual-cases.json say, in queues that are deleted afterwards."
    add = under.add_parser("check", description=text, help="does a node answer as the contract says?").add_argument
    add("url", metavar="URL", help="a node's address; its token stands in KQ_VIRTUAL_TOKEN")
    add("--ca", metavar="FILE", help="the certificates that sign the node's, if public ones do not")


def run(args: argparse.Namespace) -> int:
    """Serve, write the plan, or check."""
    return {"plan": _plan, "check": _check}.get(args.what, _serve)(args)


def _check(args: argparse.Namespace) -> int:
    from kqlib.runtime import places
    from kqlib.virtual.conformance import Conformance

    carried = places.repo() or Path(sys.prefix, "share", "kqlib")
    cases = json.loads((carried / "data" / "virtual-cases.json").read_text(encoding="utf-8"))["cases"]
    failed = 0
    for name, why in Conformance(args.url, os.environ.get("KQ_VIRTUAL_TOKEN") or None, args.ca).run(cases):
        failed += bool(why)
        print(f"{'✗' if why else '✓'} {name}" + f"\n    {why}" * bool(why), flush=True)
    print(f"{len(cases) - failed} of {len(cases)} cases are as they should be.")
    return 1 if failed else 0


def _plan(args: argparse.Namespace) -> int:
    from kqlib.topics import Plan
    from kqlib.virtual import topics

    Plan(topics(args.topic, args.partitions)).write(args.file)
    print(f"Written: {args.file}. Now: kq topics apply {args.file}")
    return 0


def _many_files() -> None:
    """A request that waits is an open file. Many systems allow a process 1,024 of them, unless it asks for more."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = FILES if most == resource.RLIM_INFINITY else min(FILES, most)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))


def _serve(args: argparse.Namespace) -> int:
    from kqlib import virtual
    from kqlib.workshop.cluster.up import current

    done = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: done.set())
    how = {"host": args.host, "port": args.port, "advertise": args.advertise}
    how |= {"origins": args.allow_origin, "hosts": args.allow_host, "tokens": args.tokens, "tls": args.tls}
    _many_files()
    with current() as cluster, virtual.Node(cluster, args.topic, **how) as node:
        # What is loaded by now stays. All requests wait for a full garbage collection, and now it need not look at these objects.
        gc.freeze()
        print(node.url, flush=True)
        tell("Serving until Ctrl-C. The routes: /docs")
        done.wait()
        tell("Giving the partitions up.")
    return 0
