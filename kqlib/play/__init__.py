"""Playgrounds: what a notebook has shown, to try by hand. Each is a thin shell over the pictures of its room."""

from kqlib.play.delivery import delivery
from kqlib.play.group import group
from kqlib.play.keys import keys
from kqlib.play.playground import Playground
from kqlib.play.queue import queue
from kqlib.play.schemas import schemas

__all__ = ["Playground", "delivery", "group", "keys", "queue", "schemas"]
