"""FastAPI: a request puts a job, and workers in the same process do it.

    KQ_BOOTSTRAP=127.0.0.1:9092 uvicorn --app-dir examples/recipes fastapi_service:app

In production give the workers a program of their own: a web process that restarts then stops no job.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from pydantic import BaseModel

import kqlib as kq
from kqlib.queue import Item

log = logging.getLogger("mails")


class Mail(BaseModel):
    """What a client sends."""

    to: str
    text: str


def send(item: Item) -> None:
    """The job. It may run twice for one item: give the mail server the item's id, so that it can drop the second one."""
    mail = Mail.model_validate_json(item.data or b"")
    log.info("%s: %d characters to %s", item.id, len(mail.text), mail.to)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One site for the process, made when it starts: after the fork of a server with several processes."""
    with kq.connect() as cluster, kq.Site(cluster, "mailer") as site:
        app.state.queue = queue = site.queue("mails", lease=30, max_attempts=5)
        stop = threading.Event()
        how = {"threads": 4, "until": stop.is_set}
        workers = threading.Thread(target=queue.work, args=(send,), kwargs=how)
        workers.start()
        yield
        stop.set()
        workers.join()


app = FastAPI(lifespan=lifespan)


@app.post("/mails", status_code=202)
def put(mail: Mail, request: Request) -> dict[str, str]:
    """Stored when it returns. Not `async`: FastAPI then calls it on a thread, and the loop goes on while Kafka answers."""
    return {"id": request.app.state.queue.put(mail.model_dump_json().encode(), key=mail.to.encode())}
