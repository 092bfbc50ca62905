"""Jobs on procrastinate and PostgreSQL: eight at once, a transaction for each put."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress

import procrastinate
from peer import NAME, SERVER, THREADS, job, main

logging.getLogger("procrastinate").setLevel(logging.ERROR)
kind = procrastinate.PsycopgConnector if sys.argv[1] == "work" else procrastinate.SyncPsycopgConnector
app = procrastinate.App(connector=kind(conninfo=SERVER))


@app.task(queue=NAME, name="job")
async def sleep_and_note(number: int, ms: float, moment: float) -> None:
    """Asynchronous: its threads would be six on two cores."""
    if ms:
        await asyncio.sleep(ms / 1e3)
    job(number, 0, moment)


def put(number: int, ms: float, moment: float) -> None:
    """In a transaction of its own."""
    sleep_and_note.defer(number=number, ms=ms, moment=moment)


async def work() -> None:
    """Until this process is ended."""
    async with app.open_async():
        await app.run_worker_async(queues=[NAME], concurrency=THREADS)


if sys.argv[1] == "work":
    asyncio.run(work())
with app.open():
    with suppress(procrastinate.exceptions.ConnectorException):  # the tables are there
        app.schema_manager.apply_schema()
    main(put, work)
