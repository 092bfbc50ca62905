"""Playgrounds: what a notebook has shown, to try by hand. Each draws with the pictures of `view`."""

# ruff: noqa: E402

from kqlib.extras import check as _needs

_needs("lab", "kq.play", "ipywidgets")

from kqlib.workshop.play.brokers import brokers
from kqlib.workshop.play.delivery import delivery
from kqlib.workshop.play.group import group
from kqlib.workshop.play.keys import keys
from kqlib.workshop.play.pipeline import pipeline
from kqlib.workshop.play.playground import Playground
from kqlib.workshop.play.queue import queue
from kqlib.workshop.play.schemas import schemas
from kqlib.workshop.play.virtual import virtual

__all__ = ["Playground", "brokers", "delivery", "group", "keys", "pipeline", "queue", "schemas", "virtual"]
