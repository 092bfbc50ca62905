"""Pictures: from plain values to an SVG with a text twin. Nothing here knows Kafka."""

from kqlib.view.cluster import Broker, Partition, cluster
from kqlib.view.crash import crash
from kqlib.view.curve import curve
from kqlib.view.deliveries import Delivery, deliveries
from kqlib.view.flow import links
from kqlib.view.grid import grid
from kqlib.view.group import Member, Slot, group
from kqlib.view.keys import Placed, Placing, keys
from kqlib.view.ladder import Ladder
from kqlib.view.lane import Lane, Record
from kqlib.view.letters import letters
from kqlib.view.log import log
from kqlib.view.matrix import matrix
from kqlib.view.owners import owners
from kqlib.view.picture import Picture
from kqlib.view.record import record
from kqlib.view.table import Cell, Table
from kqlib.view.timeline import Block, Column, Row, timeline

__all__ = [
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
    "cluster",
    "crash",
    "curve",
    "deliveries",
    "grid",
    "group",
    "keys",
    "letters",
    "links",
    "log",
    "matrix",
    "owners",
    "record",
    "timeline",
]
