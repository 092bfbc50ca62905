"""Makes the stored outputs anew: what `make notebooks` calls.

    python -m tests.notebooks.regenerate [--twice] [FILE…]    # all of notebooks/ without a FILE, two at a time

In: notebooks. Out: the same files with the outputs of this run, written only where something changed and only when the
gate finds nothing. Else the file stays as it was and the exit status is 1. `--twice` makes each notebook twice,
compares the bytes, and writes nothing.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from . import glossary
from .gate import check, notebooks
from .kernels import run, scratch
from .page import named
from .stored import normalise, text

AT_ONCE = 2  # one to three brokers each: more starve a small machine


@dataclass(frozen=True)
class Made:
    """One notebook made anew: its bytes, or why not."""

    text: str = ""
    wrong: tuple[str, ...] = ()
    seconds: float = 0.0


def made(path: Path) -> Made:
    """Run one notebook and bring it into its stored form; nothing is written."""
    start = time.monotonic()
    try:
        with scratch() as place:
            nb = normalise(run(nbformat.v4.reads(path.read_text(encoding="utf-8")), path.parent, place))
            left = [f"{named(path)}: it left something behind: {one}" for one in place.left()]
    except (CellExecutionError, CellTimeoutError, DeadKernelError, ValueError) as error:
        words = re.sub(r"\x1b\[[\d;]*m", "", str(error)).strip()  # nbclient's message: the cell, then the traceback
        return Made(wrong=(f"{named(path)}: {type(error).__name__}: {words}",), seconds=time.monotonic() - start)
    found = [str(finding) for finding in check(path, text(nb))]
    return Made(text(nb), tuple(found + left), time.monotonic() - start)


def store(path: Path) -> tuple[bool, str]:
    """Make one notebook and write it if it changed and is good; (is it good, what to print)."""
    before, new = path.read_text(encoding="utf-8"), made(path)
    if new.wrong:
        return False, "\n".join([*new.wrong, f"{named(path)}: refused, the file stays as it was ({new.seconds:.0f} s)"])
    if path.read_text(encoding="utf-8") != before:
        return False, f"{named(path)}: refused, someone saved the file meanwhile; run it again ({new.seconds:.0f} s)"
    if new.text == before:
        return True, f"{named(path)}: the same ({new.seconds:.0f} s)"
    path.write_text(new.text, encoding="utf-8", newline="\n")
    return True, f"{named(path)}: changed ({new.seconds:.0f} s)"


def twice(path: Path) -> tuple[bool, str]:
    """Make one notebook twice and compare the bytes, with each other and with the file."""
    kept, first, second = path.read_text(encoding="utf-8"), made(path), made(path)
    if wrong := first.wrong or second.wrong:
        return False, "\n".join(wrong)
    if words := difference(first.text, second.text):
        return False, f"{named(path)}: not the same bytes the second time\n{words}"
    if words := difference(kept, first.text):
        return False, f"{named(path)}: not the stored bytes\n{words}"
    return True, f"{named(path)}: the same bytes twice, and as stored ({first.seconds:.0f} + {second.seconds:.0f} s)"


def difference(old: str, new: str) -> str:
    """The lines in which two files differ, cut to a readable length; "" when they are the same."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "before", "now", lineterm="", n=1)
    return "" if old == new else "\n".join(line[:200] for line in lines) or "only in its last line's end"


def main(arguments: list[str]) -> int:
    """Make them all, print each as it is done."""
    parser = argparse.ArgumentParser(prog="python -m tests.notebooks.regenerate", description=made.__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--twice", action="store_true", help="make each twice and compare the bytes; write nothing")
    options = parser.parse_args(arguments)
    paths = options.files or notebooks()
    if missing := [str(path) for path in paths if not path.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    if not paths:
        print("no notebooks to make")
    good = bool(paths)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = [pool.submit(twice if options.twice else store, path) for path in paths]
        try:
            for job in as_completed(jobs):
                fine, words = job.result()
                good = good and fine
                print(words, flush=True)
        except KeyboardInterrupt:
            os._exit(130)  # the kernels see their parent gone and end within a second, their brokers with them
    glossary.write()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
