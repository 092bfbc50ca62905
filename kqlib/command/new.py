"""Start a project of your own: a queue, its worker, its tests.

In:  a template and a directory that is not there yet, or is empty. Out: the project's files, with the directory's name in them.
The templates are in data/new of the checkout, and the wheel carries them.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

from kqlib.errors import NotAllowed
from kqlib.text import count, near

EPILOG = """\
service: orders become receipts, exactly once
two-sports: a feed with an outbox, work in order per game, notifications,
  standings: the system of notebook 15
Both have schemas, a plan, tests on a real Kafka, and a file for CI.
example: kq new service ../receipts
"""
NAME = re.compile(r"[a-z][a-z0-9-]*")
NEXT = """\
Made {files} in {place}. Next:
  cd {place}
  python -m venv .venv && . .venv/bin/activate
  pip install --find-links wheels -e '.[test]'  # first put kqlib's wheel into wheels/: `make wheel` builds it
  pytest"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Define what can be typed after `kq new`."""
    parser.add_argument("template", metavar="TEMPLATE", help="what to start from: service or two-sports")
    parser.add_argument(
        "directory", metavar="DIR", type=Path, help="where to make it; its last part is the project's name"
    )


def run(args: argparse.Namespace) -> int:
    """Copy the template, with the project's name."""
    from kqlib.runtime import places

    templates = (places.repo() or Path(sys.prefix, "share", "kqlib")) / "data" / "new"
    known = sorted(each.name for each in templates.iterdir()) if templates.is_dir() else []
    place = args.directory
    name = place.resolve().name
    if args.template not in known:
        hint = near(args.template, known) or f"; there is {', '.join(known) or 'none'}"
        raise NotAllowed(f"there is no template {args.template!r}{hint}")
    if not NAME.fullmatch(name):
        raise NotAllowed(f"{name!r} cannot be a project's name: use a-z, 0-9 and '-', and begin with a letter")
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise NotAllowed(f"{place} is there already, and not empty: nothing was written")
    template = templates / args.template
    files = [path for path in sorted(template.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    for path in files:
        made = place / path.relative_to(template)
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(path.read_text(encoding="utf-8").replace(f"new-{args.template}", name), encoding="utf-8")
        shutil.copymode(path, made)
    print(NEXT.format(files=count(len(files), "file"), place=place))
    return 0
