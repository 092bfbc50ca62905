"""The long tests: what `make nightly` calls.

    python -m tests.nightly                      every part, one after the other, without a limit of time
    python -m tests.nightly faults               one part, for at most 40 minutes; the same command again continues it
    python -m tests.nightly mutants --share 1/3  a third of its units
    python -m tests.nightly drivers --share 3/7  its share of the third of seven nights; without --share it is tonight's
    python -m tests.nightly mutants --seed 7     with the seed of the night whose result you want to see again

A finished part that is named starts again from the beginning. Without a name, finished parts keep their result; if all are
finished, all start again. Out: a verdict as the last line; exit status 0 if all is good.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys

from tests.nightly.parts import PARTS
from tests.nightly.run import finished, run


def share(text: str) -> tuple[int, int]:
    """Which share of how many: 1/3."""
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if found is None or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"a share is K/N, for example 1/3, and this is {text!r}")
    return int(found[1]), int(found[2])


def main(arguments: list[str]) -> int:
    """Run one part or all of them; print each verdict."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description="The long tests, in parts.")
    parser.add_argument("part", nargs="?", help=", ".join(PARTS))
    parser.add_argument("--share", type=share, help="K/N: run only share K of N, for example 1/3")
    parser.add_argument("--seed", type=int, help="the seed for the random choices (default: a new one)")
    options = parser.parse_args(arguments)
    if options.part and options.part not in PARTS:
        sys.exit(f"there is no part {options.part!r}; there are {', '.join(PARTS)}")
    if options.part:
        found = [run(options.part, PARTS[options.part], options.share, options.seed)]
    else:
        over = {name: finished(name, part) for name, part in PARTS.items()}
        again = all(over.values())
        found = [
            (None if again else over[name]) or run(name, part, seed=options.seed, minutes=float("inf"))
            for name, part in PARTS.items()
        ]
    print("---", *(line for _, line in found), sep="\n")
    return 0 if all(good for good, _ in found) else 1


if __name__ == "__main__":
    for ends in (signal.SIGTERM, signal.SIGINT):  # a shell's background jobs, and all that they start, ignore SIGINT
        signal.signal(ends, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
