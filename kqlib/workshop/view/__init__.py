"""Pictures: from plain values to an SVG with a text twin. Nothing here knows Kafka."""

from kqlib.workshop.view.bands import Band, bands
from kqlib.workshop.view.cluster import Broker, Partition, cluster
from kqlib.workshop.view.crash import crash
from kqlib.workshop.view.curve import curve
from kqlib.workshop.view.deliveries import Delivery, deliveries
from kqlib.workshop.view.film import film
from kqlib.workshop.view.grid import grid
from kqlib.workshop.view.group import Member, Slot, group, owners
from kqlib.workshop.view.keys import Placed, Placing, keys, moved, spread
from kqlib.workshop.view.ladder import Ladder
from kqlib.workshop.view.lane import Lane, Record
from kqlib.workshop.view.letters import letters
from kqlib.workshop.view.links import links
from kqlib.workshop.view.log import log
from kqlib.workshop.view.matrix import matrix
from kqlib.workshop.view.parts import parts
from kqlib.workshop.view.picture import Picture
from kqlib.workshop.view.record import record
from kqlib.workshop.view.table import Cell, Table
from kqlib.workshop.view.timeline import Block, Column, Row, timeline
from kqlib.workshop.view.wire import wire

__all__ = [
    "Band",
    "Block",
    "Broker",
    "Cell",
    "Column",
    "Delivery",
    "Ladder",
    "Lane",
    "Member",
    "Partition",
    "Picture",
    "Placed",
    "Placing",
    "Record",
    "Row",
    "Slot",
    "Table",
    "bands",
    "cluster",
    "crash",
    "curve",
    "deliveries",
    "film",
    "grid",
    "group",
    "keys",
    "letters",
    "links",
    "log",
    "matrix",
    "moved",
    "owners",
    "parts",
    "record",
    "spread",
    "timeline",
    "wire",
]
