"""OpenTelemetry: the span of a put is the parent of the span of its handler, also in another process.

    KQ_BOOTSTRAP=127.0.0.1:9092 python examples/recipes/opentelemetry_trace.py

The W3C trace context (`traceparent`) travels in the item's headers. A released, buried or redriven item keeps it.
"""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import TracerProvider

import kqlib as kq
from kqlib.queue import Item, Queue

trace.set_tracer_provider(TracerProvider())
tracer = trace.get_tracer("goals")


def put(queue: Queue, data: bytes, key: bytes) -> str:
    """Put with the context of the span that is open."""
    context: dict[str, str] = {}
    propagate.inject(context)
    return queue.put(data, key, {name: value.encode() for name, value in context.items()})


def traced(handler: Callable[[Item], object]) -> Callable[[Item], None]:
    """A handler in a span of its own, whose parent is the span of the put."""

    def handle(item: Item) -> None:
        context = {name: value.decode() for name, value in item.headers.items() if value is not None}
        with tracer.start_as_current_span("handle", propagate.extract(context)) as span:
            span.set_attribute("messaging.message.id", item.id)
            handler(item)

    return handle


if __name__ == "__main__":
    with kq.connect() as cluster, kq.Site(cluster, "scoreboard") as site:
        queue = site.queue("goals", lease=30)
        with tracer.start_as_current_span("request") as span:
            print("put in trace", hex(span.get_span_context().trace_id))
            put(queue, b"1:0", b"ARS-CHE")

        def show(item: Item) -> None:
            print("handled in trace", hex(trace.get_current_span().get_span_context().trace_id))

        queue.work(traced(show), until="empty")
