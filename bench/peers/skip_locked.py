"""A table with SKIP LOCKED, through psycopg: a transaction for each put, claim and ack. The server's address is the first word."""

from __future__ import annotations

import sys
from typing import Any

import psycopg
from rounds import Client, main

PUT = "INSERT INTO jobs (queue, data) SELECT %s, unnest(%s::bytea[])"
CLAIM = """
UPDATE jobs SET until = now() + interval '30 s' WHERE id IN (
    SELECT id FROM jobs WHERE queue = %s AND (until IS NULL OR until < now()) ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
) RETURNING id, data
"""


def client(name: str) -> Client:
    """With a connection of its own."""
    db = psycopg.connect(sys.argv[1], autocommit=True)

    def claim(n: int) -> list[Any]:
        return [number for number, _ in db.execute(CLAIM, (name, n)).fetchall()]

    return (
        lambda items: db.execute(PUT, (name, items)),
        claim,
        lambda taken: db.execute("DELETE FROM jobs WHERE id = ANY(%s)", (taken,)),
    )


with psycopg.connect(sys.argv[1], autocommit=True) as first:
    first.execute("DROP TABLE IF EXISTS jobs")
    first.execute("CREATE TABLE jobs (id bigserial PRIMARY KEY, queue text, data bytea, until timestamptz)")
    first.execute("CREATE INDEX ON jobs (queue, id)")
main(client)
