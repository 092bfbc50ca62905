"""A Redis stream with a group for each queue, through redis-py. The server's address is the first word."""

from __future__ import annotations

import sys
from typing import Any

from redis import Redis
from rounds import Client, main


def client(name: str) -> Client:
    """With a connection of its own."""
    redis = Redis.from_url(sys.argv[1])
    redis.delete(name)
    redis.xgroup_create(name, "g", mkstream=True)

    def put(items: list[bytes]) -> None:
        with redis.pipeline(transaction=False) as many:
            for item in items:
                many.xadd(name, {"data": item})
            many.execute()

    def claim(n: int) -> list[Any]:
        return [number for number, _ in redis.xreadgroup("g", "c", {name: ">"}, count=n)[0][1]]

    return put, claim, lambda taken: redis.xack(name, "g", *taken)


main(client)
