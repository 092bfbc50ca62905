"""The HTTP routes of a node: which request asks what of which partition. Waiting holds no thread.

In:  HTTP. Out: JSON. What each route takes and gives, at a glance (`/openapi.json` has all of it):

    GET    /map /health /ready /metrics             who owns what; is the process there; does it answer for its partitions; numbers
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

An error is {"title": name, "detail": sentence, …}, application/problem+json (`errors`); 409 brings the map, 503 a Retry-After.
"""

from __future__ import annotations

import asyncio
import html
import math
import time
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from kqlib.errors import KqError
from kqlib.queue.item import Put
from kqlib.text import Metric, as_metrics
from kqlib.virtual import bodies
from kqlib.virtual.consumer import Name
from kqlib.virtual.errors import MEMBERS, PROBLEM, STATUS, NotFound, NotMine, Unavailable, problem
from kqlib.virtual.index import StoredRecord
from kqlib.virtual.names import FORM
from kqlib.virtual.origins import OriginCheck
from kqlib.virtual.partition import Operation, PartitionServer, Run
from kqlib.virtual.record_json import headers_to_text, to_text
from kqlib.virtual.request_limits import RequestLimits
from kqlib.virtual.store import NOTHING, ClaimedItem, ItemStore, Writes

SLICE = 500  # consumers that one operation counts
ANSWER_IN = 20.0  # seconds, beside the seconds that a request wants to wait
CONSUMER = "/queues/{q}/consumers/{c}"
TITLE = "Virtual queues"
METRICS = {
    "virtual_requests_total": "Requests that this node has answered, by status.",
    "virtual_partition_serving": "1 if this node answers for the partition, 0 while it reads it.",
    "virtual_waiting_requests": "Long polls that wait.",
    "virtual_queues": "Queues of the partition.",
    "virtual_records": "Records of its queues that its log still has.",
    "virtual_claimed_items": "Items that are handed out.",
}
Queue = Annotated[str, Path(pattern=f"^{FORM}$", max_length=200, description="a queue")]
Consumer = Annotated[str, Path(pattern=f"^{FORM}$", max_length=200, description="a consumer")]
Limit = Annotated[int, Query(ge=1, le=bodies.MOST)]
Wait = Annotated[float, Query(ge=0, le=bodies.LONGEST_WAIT, allow_inf_nan=False)]
Start = Annotated[int, Query(alias="from", ge=0, le=2**62)]
Text = Annotated[str, Query(max_length=200)]
PutKey = Annotated[str | None, Header(alias="Idempotency-Key", pattern="^[!-~]+$", max_length=100)]
router = APIRouter()


def app(node: Any) -> FastAPI:
    """The application of a `Node`."""
    statuses: dict[int | str, str] = {status: kind.__name__ for kind, status in STATUS.items()}
    statuses |= {400: "no HTTP, or no JSON", 405: "no such verb here", 408: "TooSlow", 500: "Broken"}
    members = {name: {"type": kind} for name, kind in MEMBERS.items()}
    form = {"type": "object", "required": [*MEMBERS], "properties": members}
    made = FastAPI(
        title=TITLE,
        description=(__doc__ or "").partition("\n")[0],
        version="1",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={
            status: {"description": why, "content": {PROBLEM: {"schema": form}}} for status, why in statuses.items()
        },
    )
    made.state.node = node
    made.include_router(router)
    made.add_exception_handler(KqError, _refused)
    made.add_exception_handler(RequestValidationError, _invalid)
    made.add_exception_handler(HTTPException, _plain)
    made.add_middleware(RequestLimits, known=node.tokens, answered=node.answered)
    made.add_middleware(OriginCheck, origins=node.origins, hosts=node.hosts)  # the last one added is asked first
    return made


async def _node(request: Request) -> Any:
    return request.app.state.node


async def _server(request: Request, q: Queue) -> PartitionServer:
    return request.app.state.node.server_of(q)


Node = Annotated[Any, Depends(_node)]
Server = Annotated[PartitionServer, Depends(_server)]  # of the queue's partition; `NotMine` if another node has it


async def ask(server: PartitionServer, run: Run, request: Request | None = None, wait: float = 0.0, **how: Any) -> Any:
    """Run an operation on the partition's thread. If the client disconnects while it waits, nothing is claimed for it."""
    answer = asyncio.wrap_future(server.ask(Operation(run, until=time.monotonic() + wait, **how)))
    gone = asyncio.ensure_future(_gone(request)) if request is not None and wait else None
    both: list[asyncio.Future[Any]] = [answer] if gone is None else [answer, gone]
    try:
        await asyncio.wait(both, timeout=wait + ANSWER_IN, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            answer.cancel()
            if gone is not None and gone.done():  # nobody reads this, but it is counted
                raise HTTPException(400, "the client hung up")
            raise Unavailable("this took too long; it may still be done", retry_after=1.0, unknown=True)
        return answer.result()
    finally:
        if gone is not None:
            gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# --- the node --------------------------------------------------------------------------------------------------------


@router.get("/map", openapi_extra=bodies.MAP)
async def partition_map(node: Node) -> dict[str, Any]:
    """Which node owns which partition."""
    return node.map.answer()


@router.get("/health")
async def health() -> dict[str, str]:
    """The process is there and answers."""
    return {"status": "ok"}


@router.get("/ready")
async def ready(node: Node) -> JSONResponse:
    """Does it answer for every partition that the group gave it?"""
    yes, why = node.ready()
    states = {str(number): server.state for number, server in node.servers().items()}
    body = {"ready": yes, "why": why, "partitions": states}
    if yes:
        return JSONResponse(body)
    return JSONResponse(body | problem(503, "Unavailable", why), 503, {"Retry-After": "1"}, PROBLEM)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(node: Node) -> PlainTextResponse:
    """Numbers of this node for Prometheus."""
    rows: list[Metric] = [("virtual_requests_total", {"status": str(at)}, n) for at, n in sorted(node.answered.items())]
    for number, server in node.servers().items():
        labels, serving = {"partition": str(number)}, server.state == "serving"
        rows.append(("virtual_partition_serving", labels, serving))
        if serving:
            rows += [(name, labels, value) for name, value in (await ask(server, _numbers)).items()]
            rows.append(("virtual_waiting_requests", labels, server.waiting))
    return PlainTextResponse(as_metrics(rows, METRICS))


def _numbers(store: ItemStore, _: Writes) -> dict[str, int]:
    records = sum(len(entry.offsets) for entry in store.index.entries.values())
    claimed = sum(ledger.partition.counts()["claimed"] for ledger in store.ledgers.values())
    return {"virtual_queues": len(store.index.entries), "virtual_records": records, "virtual_claimed_items": claimed}


@router.get("/openapi.json", include_in_schema=False)
def contract(request: Request) -> JSONResponse:
    """What all routes take and give. It takes 0.15 s to make: in a thread, since all other requests would wait."""
    return JSONResponse(request.app.openapi())


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """The routes as a page that needs nothing from elsewhere."""
    rows = [
        f"<tr><td>{verb.upper()}<td><code>{html.escape(path)}</code><td>{html.escape(route.get('description', ''))}"
        for path, verbs in request.app.openapi()["paths"].items()
        for verb, route in verbs.items()
    ]
    return HTMLResponse(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{TITLE}</title><h1>{TITLE}</h1>"
        f"<p>All of it for programs: <a href=openapi.json>openapi.json</a><table>{''.join(rows)}</table>"
    )


@router.post("/partitions/{p}/collect", openapi_extra=bodies.gives({"low": bodies.INTEGER}))
async def collect(node: Node, p: Annotated[int, Path(ge=0, lt=2**31)]) -> dict[str, int]:
    """Delete the records that no queue of this partition needs any more; where its log begins now."""
    if p >= node.partitions:
        raise NotFound(f"'{node.topic}' has partitions 0 to {node.partitions - 1}, not {p}")
    server = node.server(p)
    needed = await ask(server, lambda store, _: store.needed(), alone=True)
    low = await asyncio.to_thread(node.collect, p, needed)
    await ask(server, lambda store, out: store.trim(low, out))
    return {"low": low}


# --- a queue as a log ------------------------------------------------------------------------------------------------


@router.post(
    "/queues/{q}/records",
    status_code=201,
    openapi_extra=bodies.gives({"partition": bodies.INTEGER, "offsets": bodies.INTEGERS}, 201),
)
async def put(server: Server, q: Queue, body: bodies.Records, key: PutKey = None) -> dict[str, Any]:
    """Put records: all of them or none. A queue appears with its first one. With the same key they are put once in ten minutes."""
    puts = [Put(each.data, each.key, each.headers, each.delay) for each in body.records]
    offsets = await ask(server, lambda store, out: store.put(q, puts, out, key), seen=True)
    return {"partition": server.partition, "offsets": offsets}


@router.get("/queues/{q}/records", openapi_extra=bodies.RECORDS)
async def read(
    request: Request, server: Server, q: Queue, *, start: Start = 0, limit: Limit = 100, wait: Wait = 0.0
) -> dict[str, Any]:
    """Read a queue as a log, from an offset on."""
    return await _read(server, lambda store, _: _page(store, q, None, start, limit), request, q, wait)


@router.get(CONSUMER + "/records", openapi_extra=bodies.RECORDS)
async def read_on(
    request: Request, server: Server, q: Queue, c: Consumer, *, limit: Limit = 100, wait: Wait = 0.0
) -> dict[str, Any]:
    """Read on from where this consumer is."""

    def run(store: ItemStore, out: Writes) -> Any:
        tracked = store.tracked(q, c)
        store.touch(q, c, out)
        return _page(store, q, tracked, 0 if tracked is None else tracked + 1, limit)

    return await _read(server, run, request, q, wait)


async def _read(server: PartitionServer, run: Run, request: Request, queue: str, wait: float) -> dict[str, Any]:
    last: dict[str, Any] = {}

    def patient(store: ItemStore, out: Writes) -> Any:
        last.update(run(store, out))
        return last if last["records"] or not wait else NOTHING

    return await ask(server, patient, request, wait, queue=queue) or last


def _page(store: ItemStore, queue: str, tracked: int | None, start: int, limit: int) -> dict[str, Any]:
    records, following = store.read(queue, start, limit)
    return {"records": [_record(record) for record in records], "next": following, "tracked": tracked}


@router.post(CONSUMER + "/offset", openapi_extra=bodies.gives({"tracked": bodies.INTEGER}))
async def done(server: Server, q: Queue, c: Consumer, body: bodies.Done) -> dict[str, Any]:
    """This consumer has done everything up to this offset."""
    return {"tracked": await ask(server, lambda store, out: store.track(q, c, body.offset, body.allow_rewind, out))}


# --- a queue with leases ---------------------------------------------------------------------------------------------


@router.post(CONSUMER + "/claim", openapi_extra=bodies.gives({"items": bodies.list_of(bodies.ITEM)}))
async def claim(request: Request, server: Server, q: Queue, c: Consumer, body: bodies.Claim) -> dict[str, Any]:
    """Up to n items, each yours until its lease ends."""

    def run(store: ItemStore, out: Writes) -> Any:
        return store.claim((q, c), body.n, body.lease, out, order=body.order, max_attempts=body.max_attempts)

    items = await ask(server, run, request, body.wait, queue=q)
    return {"items": [_item(each) for each in items or ()]}


@router.post(CONSUMER + "/ack", openapi_extra=bodies.DONE)
async def ack(server: Server, q: Queue, c: Consumer, body: bodies.Receipts) -> dict[str, Any]:
    """These items are done."""
    return await _receipts(server, lambda store, out: store.ack((q, c), body.receipts, out))


@router.post(CONSUMER + "/release", openapi_extra=bodies.DONE)
async def release(server: Server, q: Queue, c: Consumer, body: bodies.Release) -> dict[str, Any]:
    """These items come again, at once or later."""
    return await _receipts(server, lambda store, out: store.release((q, c), body.receipts, body.delay, out))


@router.post(CONSUMER + "/extend", openapi_extra=bodies.DONE)
async def extend(server: Server, q: Queue, c: Consumer, body: bodies.Extend) -> dict[str, Any]:
    """These items stay yours for longer, from now."""
    return await _receipts(server, lambda store, out: store.extend((q, c), body.receipts, body.lease, out))


@router.post(CONSUMER + "/bury", openapi_extra=bodies.DONE)
async def bury(server: Server, q: Queue, c: Consumer, body: bodies.Bury) -> dict[str, Any]:
    """These items go to the queue's dead letters."""
    return await _receipts(server, lambda store, out: store.bury((q, c), body.receipts, body.reason, out))


async def _receipts(server: PartitionServer, run: Run) -> dict[str, Any]:
    return {"done": await ask(server, run), "refused": {}}


@router.post(CONSUMER + "/redrive", openapi_extra=bodies.gives({"moved": bodies.INTEGER}))
async def redrive(server: Server, q: Queue, c: Consumer, body: bodies.Redrive) -> dict[str, int]:
    """Dead letters go back to their queue, as new items."""
    return {"moved": await ask(server, lambda store, out: store.redrive((q, c), body.n, out))}


# --- looking, deleting -----------------------------------------------------------------------------------------------


@router.get(
    "/queues", openapi_extra=bodies.gives({"queues": bodies.list_of(bodies.QUEUE), "after": bodies.TEXT_OR_NULL})
)
async def queues(node: Node, prefix: Text = "", after: Text = "", limit: Limit = 100) -> dict[str, Any]:
    """This node's queues in the order of their names, a page of them."""

    def run(store: ItemStore, _: Writes) -> list[dict[str, Any]]:
        return [store.queue(name) for name in store.index.names(prefix, after, limit)]

    pages = []
    for server in node.servers().values():
        await _count(server, await ask(server, lambda store, _: store.index.names(prefix, after, limit)))
        pages.append(await ask(server, run))
    found = sorted((each for page in pages for each in page), key=lambda each: each["queue"])[:limit]
    return {"queues": found, "after": found[-1]["queue"] if len(found) == limit else None}


@router.get("/queues/{q}", openapi_extra=bodies.gives(bodies.QUEUE | bodies.CONSUMERS))
async def queue(server: Server, q: Queue, after: Text = "", limit: Limit = 100) -> dict[str, Any]:
    """One queue and its consumers in the order of their names, a page of them."""
    await _count(server, [q])
    return await ask(server, lambda store, _: store.queue(q) | _consumers(store, q, after, limit))


@router.get("/queues/{q}/consumers", openapi_extra=bodies.gives(bodies.CONSUMERS))
async def consumers(server: Server, q: Queue, after: Text = "", limit: Limit = 100) -> dict[str, Any]:
    """A queue's consumers in the order of their names, a page of them."""
    return await ask(server, lambda store, _: _consumers(store, q, after, limit))


def _consumers(store: ItemStore, queue: str, after: str, limit: int) -> dict[str, Any]:
    found = store.consumers(queue, after, limit)
    return {"consumers": found, "after": found[-1]["consumer"] if len(found) == limit else None}


async def _count(server: PartitionServer, names: list[str]) -> None:
    """Count what the consumers of these queues have done, some at a time: the partition's other requests come between."""
    left = await ask(server, lambda store, _: store.uncounted(names))
    for at in range(0, len(left), SLICE):
        await ask(server, partial(_depths, left[at : at + SLICE]))


def _depths(names: list[Name], store: ItemStore, _: Writes) -> list[int]:
    return [store.depth(*each) for each in names]


@router.get(CONSUMER, openapi_extra=bodies.gives(bodies.CONSUMER))
async def consumer(server: Server, q: Queue, c: Consumer) -> dict[str, Any]:
    """One consumer."""
    return await ask(server, lambda store, _: store.consumer(q, c))


@router.get(CONSUMER + "/depth", openapi_extra=bodies.gives({"depth": bodies.INTEGER}))
async def depth(server: Server, q: Queue, c: Consumer) -> dict[str, int]:
    """How many records are not done, for this consumer."""
    return {"depth": await ask(server, lambda store, _: store.depth(q, c))}


@router.delete("/queues/{q}", openapi_extra=bodies.gives({"end": bodies.INTEGER}))
async def delete(server: Server, q: Queue) -> dict[str, int]:
    """Delete the queue and all its consumers, for every reader at once."""
    return {"end": await ask(server, lambda store, out: store.delete(q, server.written, out), alone=True)}


@router.delete(CONSUMER, status_code=204)
async def forget(server: Server, q: Queue, c: Consumer) -> Response:
    """Delete this consumer."""
    await ask(server, lambda store, out: store.forget(q, c, out))
    return Response(status_code=204)


# --- answers ---------------------------------------------------------------------------------------------------------


def _record(record: StoredRecord) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "data": to_text(record.data),
        "key": to_text(record.key),
        "headers": headers_to_text(record.own_headers),
        "created": record.created / 1000,
    }


def _item(item: ClaimedItem) -> dict[str, Any]:
    """An item; its lease in seconds from now."""
    left = max(0.0, item.deadline - time.monotonic())
    return {"receipt": item.receipt, "attempt": item.attempt, "lease": left, **_record(item.record)}


async def _refused(request: Request, error: Any) -> JSONResponse:
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
    facts = {name: value for name, value in error.facts.items() if name != "why"}
    body, headers = problem(status, type(error).__name__, str(error), **facts), {}
    if isinstance(error, NotMine):
        body["map"] = request.app.state.node.map.answer()
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(max(1, math.ceil(facts.get("retry_after", 0))))
    return JSONResponse(body, status, headers, PROBLEM)


async def _invalid(request: Request, error: Any) -> JSONResponse:
    """A sentence for each thing that is wrong; the input itself is not repeated."""
    why = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5])
    kind = request.headers.get("content-type", "")
    if error.body and "json" not in kind:  # it was not parsed
        why = f"body: it is JSON, and has to say so, as in 'Content-Type: application/json', not {kind[:100]!r}"
    return JSONResponse(problem(422, "NotAllowed", why), 422, media_type=PROBLEM)


async def _plain(request: Request, error: Any) -> JSONResponse:
    missing = error.status_code == 404
    why = "there is no such route: see /docs" if missing else str(error.detail)
    body, headers = problem(error.status_code, "NotFound" if missing else "NotAllowed", why), {}
    if error.status_code == 405:  # Starlette names the verbs of one route of this path
        routes = [route for route in router.routes if route.path_regex.match(request.scope["path"])]  # type: ignore[attr-defined]
        headers["Allow"] = ", ".join(sorted({verb for route in routes for verb in route.methods}))  # type: ignore[attr-defined]
    return JSONResponse(body, error.status_code, headers, PROBLEM)
