"""The command `kq`: what is typed becomes a call of one of the functions below; each returns its exit code.

In:  arguments. Out: answers on stdout, notices and errors on stderr; exit 0 well, 1 a plain no, 2 an error, 130 Ctrl-C.
What a command does is in its room (`up`, `doctor`, `topics`, …), imported when it is asked for: `kq --help` is there at once.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from kqlib.errors import KqError

EXAMPLE = """\
example: a Kafka of three brokers for several notebooks
  eval "$(kq up --brokers 3)" && kq lab
"""
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 + the signal, as shells say it


# --- the commands -----------------------------------------------------------------------------------------------------


def lab(args: argparse.Namespace) -> int:
    """open the notebooks in JupyterLab"""
    from kqlib import jupyter

    jupyter.become(args.notebook, browser=not args.no_browser, extra=args.rest)


def up(args: argparse.Namespace) -> int:
    """keep a Kafka running for several notebooks"""
    from kqlib import up as room

    running = room.start(args.brokers or 1)
    if args.brokers not in {None, running.brokers}:
        said = f"`kq up` keeps a cluster of {_brokers(running.brokers)} already; end it with `kq down` first"
        return _tell(f"kq: {said}", 1)
    _tell(f"Kafka is running: {_brokers(running.brokers)}, until `kq down`. Notebooks and kq use it after this line:")
    print(running.export)
    return 0


def down(args: argparse.Namespace) -> int:
    """end the Kafka that `kq up` keeps"""
    from kqlib import up as room

    was = room.find()
    print("Kafka has ended." if room.stop() else "Nothing runs.")
    if was and was.bootstrap == os.environ.get("KQ_BOOTSTRAP"):
        _tell("KQ_BOOTSTRAP still names it here: unset KQ_BOOTSTRAP")
    return 0


def status(args: argparse.Namespace) -> int:
    """what runs, where, and how it is"""
    from dataclasses import asdict

    from kqlib import up as room
    from kqlib.broker import configured
