"""The routes of a node: which request asks what of which partition, and what is answered. Leaving and waiting hold no thread.

In:  HTTP. Out: JSON. What each route takes and gives, at a glance (`/openapi.json` has all of it):

    GET    /map /health /ready                      who owns what; is the process there; does it answer for its partitions
    POST   /queues/{q}/records                      put: all records or none                         201 {partition, offsets}
    GET    /queues/{q}/records?from&limit&wait      read as a log                                    {records, next, tracked}
    GET    /queues/{q}/consumers/{c}/records        the same, from where this consumer is
    POST   /queues/{q}/consumers/{c}/offset         done up to here                                  {tracked} | 412 {tracked}
    POST   /queues/{q}/consumers/{c}/claim          work with leases                                 {items}
    POST   …/ack …/release …/extend …/bury          by receipt                                       {done, refused} | 410 the same
    POST   …/redrive                                dead letters back to their queue                 {moved}
    GET    /queues /queues/{q} …/consumers …/consumers/{c} …/depth     looking
    DELETE /queues/{q} …/consumers/{c}              gone, for every reader at once
    POST   /partitions/{p}/collect                  delete the records that no queue needs any more  {low}

An error is {"error": name, "why": sentence, …} with its status (`errors`); 409 brings the map, 503 a Retry-After.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException

from kqlib.errors import KqError
from kqlib.virtual import forms
from kqlib.virtual.door import Door, page
from kqlib.virtual.errors import ANSWERS, NotFound, NotMine, Unavailable
from kqlib.virtual.keeper import Keeper, Op
from kqlib.virtual.origin import Origins
from kqlib.virtual.shelf import NOTHING, Shelf
from kqlib.virtual.states import Writes
from kqlib.virtual.work import Asked

if TYPE_CHECKING:
    from kqlib.virtual.node import Node

ANSWER_IN = 20.0  # seconds, beside what a request waits by its own wish
Q = Annotated[str, Path(pattern=f"^{forms.FORM}$", max_length=200, description="a queue")]
C = Annotated[str, Path(pattern=f"^{forms.FORM}$", max_length=200, description="a consumer")]
P = Annotated[int, Path(ge=0, lt=2**31, description="a partition")]
Limit = Annotated[int, Query(ge=1, le=forms.MOST)]
Wait = Annotated[float, Query(ge=0, le=forms.LONGEST_WAIT, allow_inf_nan=False)]
Start = Annotated[int, Query(alias="from", ge=0, le=2**62)]
Text = Annotated[str, Query(max_length=200)]
Run = Callable[[Shelf, Writes], Any]
SAID: dict[int | str, str] = {405: "no such verb here", **{status: kind.__name__ for kind, status in ANSWERS.items()}}
CONSUMER = "/queues/{q}/consumers/{c}"


def app(node: Node) -> FastAPI:
    """The application of one node."""
    made = FastAPI(
        title="Virtual queues",
        description=(__doc__ or "").partition("\n")[0],
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={status: {"description": why} for status, why in SAID.items()},
    )
    for add in (_common, _log, _queue, _look, _delete):
        add(made, node)
    made.add_exception_handler(KqError, lambda _, error: _refused(node, error))
    made.add_exception_handler(RequestValidationError, _invalid)
    made.add_exception_handler(HTTPException, lambda _, error: _plain(error))
    made.add_middleware(Door, token=node.token)
    made.add_middleware(Origins, origins=node.origins, hosts=node.hosts)  # the last one added is asked first
    return made


# --- asking a partition ----------------------------------------------------------------------------------------------


async def ask(keeper: Keeper, run: Run, request: Request | None = None, wait: float = 0.0, **how: Any) -> Any:
    """Have it done by the partition's keeper. Who hangs up while waiting is not given anything."""
    op = Op(run, until=time.monotonic() + wait, **how)
    answer = asyncio.wrap_future(keeper.ask(op))
    gone = asyncio.ensure_future(_gone(request)) if request is not None and wait else None
    both: list[asyncio.Future[Any]] = [answer] if gone is None else [answer, gone]
    try:
        await asyncio.wait(both, timeout=wait + ANSWER_IN, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            answer.cancel()
            raise Unavailable("this took too long; it may still be done", 1.0, unknown=True)
        return answer.result()
    finally:
        if gone is not None:
            gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# --- routes ----------------------------------------------------------------------------------------------------------


def _common(made: FastAPI, node: Node) -> None:
    @made.get("/map")
    async def partition_map() -> dict[str, Any]:
        """Which node owns which partition."""
        return node.map.answer()

    @made.get("/health")
    async def health() -> dict[str, str]:
        """The process is there and answers."""
        return {"status": "ok"}

    @made.get("/ready")
    async def ready() -> JSONResponse:
        """Does it answer for every partition that the group gave it?"""
        yes, why = node.ready()
        states = {str(number): keeper.state for number, keeper in node.keepers().items()}
        headers = {} if yes else {"Retry-After": "1"}
        return JSONResponse({"ready": yes, "why": why, "partitions": states}, 200 if yes else 503, headers)

    @made.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        """The routes as a page that needs nothing from elsewhere."""
        return HTMLResponse(page(made.openapi()))


def _log(made: FastAPI, node: Node) -> None:
    @made.post("/queues/{q}/records", status_code=201)
    async def put(q: Q, body: forms.Records) -> dict[str, Any]:
        """Put records: all of them or none. A queue appears with its first one."""
        puts, keeper = body.puts(), node.keeper_of(q)
        offsets = await ask(keeper, lambda shelf, out: shelf.put(q, puts, out), seen=True)
        return {"partition": keeper.partition, "offsets": offsets}

    @made.get("/queues/{q}/records")
    async def read(request: Request, q: Q, start: Start = 0, limit: Limit = 100, wait: Wait = 0.0) -> dict[str, Any]:
        """Read a queue as a log, from an offset on."""

        def run(shelf: Shelf, _: Writes) -> Any:
            return _page_of(shelf, q, None, start, limit)

        return await _read(node.keeper_of(q), run, request, q, wait)

    @made.get(CONSUMER + "/records")
    async def read_on(request: Request, q: Q, c: C, limit: Limit = 100, wait: Wait = 0.0) -> dict[str, Any]:
        """Read on from where this consumer is."""

        def run(shelf: Shelf, out: Writes) -> Any:
            tracked = shelf.tracked(q, c)
            shelf.touch(q, c, out)
            return _page_of(shelf, q, tracked, 0 if tracked is None else tracked + 1, limit)

        return await _read(node.keeper_of(q), run, request, q, wait)

    @made.post(CONSUMER + "/offset")
    async def done(q: Q, c: C, body: forms.Done) -> dict[str, Any]:
        """This consumer has done everything up to this offset."""
        run: Run = lambda shelf, out: shelf.track(q, c, body.offset, body.allow_rewind, out)  # noqa: E731
        return {"tracked": await ask(node.keeper_of(q), run)}


async def _read(keeper: Keeper, run: Run, request: Request, queue: str, wait: float) -> dict[str, Any]:
    last: dict[str, Any] = {}

    def patient(shelf: Shelf, out: Writes) -> Any:
        last.update(run(shelf, out))
        return last if last["records"] or not wait else NOTHING

    return await ask(keeper, patient, request, wait, queue=queue) or last


def _page_of(shelf: Shelf, queue: str, tracked: int | None, start: int, limit: int) -> dict[str, Any]:
    records, following = shelf.read(queue, start, limit)
    return {"records": [forms.record_of(record) for record in records], "next": following, "tracked": tracked}


def _queue(made: FastAPI, node: Node) -> None:
    @made.post(CONSUMER + "/claim")
    async def claim(request: Request, q: Q, c: C, body: forms.Claim) -> dict[str, Any]:
        """Up to n items, each yours until its lease ends."""
        asked = Asked(body.order, body.max_attempts)
        run: Run = lambda shelf, out: shelf.claim((q, c), body.n, body.lease, asked, out)  # noqa: E731
        given = await ask(node.keeper_of(q), run, request, body.wait, queue=q, empty=[])
        return {"items": [forms.item_of(each) for each in given]}

    @made.post(CONSUMER + "/ack")
    async def ack(q: Q, c: C, body: forms.Ack) -> dict[str, Any]:
        """These items are done."""
        return await _receipts(node, q, lambda shelf, out: shelf.ack((q, c), body.receipts, out))

    @made.post(CONSUMER + "/release")
    async def release(q: Q, c: C, body: forms.Release) -> dict[str, Any]:
        """These items come again, at once or later."""
        return await _receipts(node, q, lambda shelf, out: shelf.release((q, c), body.receipts, body.delay, out))

    @made.post(CONSUMER + "/extend")
    async def extend(q: Q, c: C, body: forms.Extend) -> dict[str, Any]:
        """These items stay yours for longer, from now."""
        return await _receipts(node, q, lambda shelf, out: shelf.extend((q, c), body.receipts, body.lease, out))

    @made.post(CONSUMER + "/bury")
    async def bury(q: Q, c: C, body: forms.Bury) -> dict[str, Any]:
        """These items go to the queue's dead letters."""
        return await _receipts(node, q, lambda shelf, out: shelf.bury((q, c), body.receipts, body.reason, out))

    @made.post(CONSUMER + "/redrive")
    async def redrive(q: Q, c: C, body: forms.Redrive) -> dict[str, int]:
        """Dead letters go back to their queue, as new items."""
        run: Run = lambda shelf, out: shelf.redrive((q, c), body.n, out)  # noqa: E731
        return {"moved": await ask(node.keeper_of(q), run)}


async def _receipts(node: Node, queue: str, run: Run) -> dict[str, Any]:
    return {"done": await ask(node.keeper_of(queue), run), "refused": {}}


def _look(made: FastAPI, node: Node) -> None:
    @made.get("/queues")
    async def queues(prefix: Text = "", after: Text = "", limit: Limit = 100) -> dict[str, Any]:
        """This node's queues in the order of their names, a page of them."""

        def run(shelf: Shelf, _: Writes) -> list[dict[str, Any]]:
            return [shelf.queue(name) for name in shelf.index.names(prefix, after, limit)]

        pages = [await ask(keeper, run) for keeper in node.keepers().values()]
        found = sorted((each for page in pages for each in page), key=lambda each: each["queue"])[:limit]
        return {"queues": found, "after": found[-1]["queue"] if len(found) == limit else None}

    @made.get("/queues/{q}")
    async def queue(q: Q) -> dict[str, Any]:
        """One queue and its consumers."""
        run: Run = lambda shelf, _: shelf.queue(q) | {"consumers": shelf.consumers(q)}  # noqa: E731
        found: dict[str, Any] = await ask(node.keeper_of(q), run)
        return found

    @made.get("/queues/{q}/consumers")
    async def consumers(q: Q) -> dict[str, Any]:
        """A queue's consumers."""
        return {"consumers": await ask(node.keeper_of(q), lambda shelf, _: shelf.consumers(q))}

    @made.get(CONSUMER)
    async def consumer(q: Q, c: C) -> dict[str, Any]:
        """One consumer."""
        found: dict[str, Any] = await ask(node.keeper_of(q), lambda shelf, _: shelf.consumer(q, c))
        return found

    @made.get(CONSUMER + "/depth")
    async def depth(q: Q, c: C) -> dict[str, int]:
        """How many records are not done, for this consumer."""
        return {"depth": await ask(node.keeper_of(q), lambda shelf, _: shelf.depth(q, c))}


def _delete(made: FastAPI, node: Node) -> None:
    @made.delete("/queues/{q}")
    async def delete(q: Q) -> dict[str, int]:
        """The queue and all its consumers are gone, for every reader at once."""
        keeper = node.keeper_of(q)
        run: Run = lambda shelf, out: shelf.delete(q, keeper.written, out)  # noqa: E731
        return {"end": await ask(keeper, run, alone=True)}

    @made.delete(CONSUMER, status_code=204)
    async def forget(q: Q, c: C) -> Response:
        """This consumer is no more."""
        await ask(node.keeper_of(q), lambda shelf, out: shelf.forget(q, c, out))
        return Response(status_code=204)

    @made.post("/partitions/{p}/collect")
    async def collect(p: P) -> dict[str, int]:
        """Delete the records that no queue of this partition needs any more; where its log begins now."""
        if p >= node.partitions:
            raise NotFound(f"'{node.topic}' has partitions 0 to {node.partitions - 1}, not {p}")
        keeper = node.keeper(p)
        needed = await ask(keeper, lambda shelf, _: shelf.needed(), alone=True)
        low = await asyncio.to_thread(node.collect, p, needed)
        await ask(keeper, lambda shelf, out: shelf.trim(low, out))
        return {"low": low}


# --- errors ----------------------------------------------------------------------------------------------------------


def _refused(node: Node, error: KqError) -> JSONResponse:
    status = next((status for kind, status in ANSWERS.items() if isinstance(error, kind)), 500)
    facts = {name: value for name, value in error.facts.items() if name != "why"}
    body, headers = {"error": type(error).__name__, "why": str(error), **facts}, {}
    if isinstance(error, NotMine):
        body["map"] = node.map.answer()
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(max(1, math.ceil(error.facts["retry_after"])))
    return JSONResponse(body, status, headers)


def _invalid(request: Request, error: Any) -> JSONResponse:
    """A sentence for each thing that is wrong; the input itself is not repeated."""
    said = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5]]
    kind = request.headers.get("content-type", "")
    if error.body and "json" not in kind:  # it was not looked into
        said = [f"body: it is JSON, and has to say so, as in 'Content-Type: application/json', not {kind[:100]!r}"]
    return JSONResponse({"error": "NotAllowed", "why": "; ".join(said)}, 422)


def _plain(error: HTTPException) -> JSONResponse:
    name = {404: "NotFound", 405: "NotAllowed"}.get(error.status_code, "NotAllowed")
    why = "there is no such route: see /docs" if error.status_code == 404 else str(error.detail)
    return JSONResponse({"error": name, "why": why}, error.status_code, dict(error.headers or {}))
