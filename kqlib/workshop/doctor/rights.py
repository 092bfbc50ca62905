"""`kq doctor --rights QUEUE`: what this user has of the rights that each verb needs, or the commands that grant them.

In:  the current cluster, a queue, a site. Out: a line a verb, JSON for programs, commands to copy. Nothing is joined. It registers the
transactional id `kq-SITE-rights`, because only a transaction that begins shows whether this user may begin one.
docs/rights.md has the same table.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING

from kqlib.errors import NotAllowed
from kqlib.text import as_json

if TYPE_CHECKING:
    from kqlib.queue.rights import Right


def run(args: argparse.Namespace) -> int:
    """`kq doctor --rights QUEUE`, with --acl or without."""
    from kqlib.queue.arguments import site_name
    from kqlib.queue.dead import DEAD

    if not args.rights:
        raise NotAllowed("--site and --acl go with --rights QUEUE. Nothing was looked at")
    queue = args.rights.removesuffix(DEAD)
    site = site_name(args.site or os.environ.get("KQ_SITE") or "default")
    if args.acl:
        print(acls(queue, site, args.acl))
        return 0
    return show(queue, site, args.json)


def show(queue: str, site: str, json: bool) -> int:
    """Ask the current cluster; 1 if a right is missing."""
    from kqlib.kafka.cluster import user
    from kqlib.queue import rights
    from kqlib.queue.answers import granted, may_begin
    from kqlib.workshop.cluster import up

    by = rights.table(queue, site)
    with up.current() as cluster:
        has = granted(cluster, dict.fromkeys(right for some in by.values() for right in some))
        has[rights.BEGIN.of(queue, site)] = may_begin(cluster, site)
        who, own = user(cluster), cluster._own
    rows = [(verb, right, has[right]) for verb, some in by.items() for right in some]
    if json:
        print(as_json([{"verb": verb, **asdict(right), "granted": given} for verb, right, given in rows]))
    else:
        print(f"what {who} may do in '{queue}' for site '{site}'")
        for verb, some in by.items():
            print(line(verb, {right: has[right] for right in some}))
        if False in has.values():
            to = own.get("sasl.username", "USER")
            print(f"to grant what it lacks: kq doctor --rights {queue} --site {quote(site)} --acl {quote(to)}")
    return int(False in has.values())


def line(verb: str, has: Mapping[Right, bool | None]) -> str:
    """A verb, and which of its rights are missing or not known: ✓ if none is."""
    lacking = ", ".join(str(right) for right, given in has.items() if given is False)
    unknown = ", ".join(str(right) for right, given in has.items() if given is None)
    words = "; ".join([f"lacks {lacking}"] * bool(lacking) + [f"not known: {unknown}"] * bool(unknown))
    return f"{'✗' if lacking else '?' if unknown else '✓'} {verb:<11}  {words}".rstrip()


def acls(queue: str, site: str, user: str) -> str:
    """The commands that grant a user what it needs: for one that only puts, and for one that works."""
    from kqlib.queue import rights

    parts = [[f"# for {role}", *rights.commands(verbs, queue, site, user)] for role, verbs in rights.ROLES.items()]
    return "\n\n".join("\n".join(lines) for lines in parts)
