"""Pictures: from plain values to an SVG with a text twin. Nothing here knows Kafka."""

from kqlib.workshop.view.bands import Band as Band, bands as bands
from kqlib.workshop.view.cluster import Broker as Broker, Partition as Partition, cluster as cluster
from kqlib.workshop.view.crash import crash as crash
from kqlib.workshop.view.curve import curve as curve
from kqlib.workshop.view.deliveries import Delivery as Delivery, deliveries as deliveries
from kqlib.workshop.view.film import film as film
from kqlib.workshop.view.grid import grid as grid
from kqlib.workshop.view.group import Member as Member, Slot as Slot, group as group, owners as owners
from kqlib.workshop.view.keys import (
    Placed as Placed,
    Placing as Placing,
    keys as keys,
    moved as moved,
    spread as spread,
)
from kqlib.workshop.view.ladder import Ladder as Ladder
from kqlib.workshop.view.lane import Lane as Lane, Record as Record
from kqlib.workshop.view.letters import letters as letters
from kqlib.workshop.view.links import links as links
from kqlib.workshop.view.log import log as log
from kqlib.workshop.view.matrix import matrix as matrix
from kqlib.workshop.view.parts import parts as parts
from kqlib.workshop.view.picture import Picture as Picture
from kqlib.workshop.view.record import record as record
from kqlib.workshop.view.table import Cell as Cell, Table as Table
from kqlib.workshop.view.timeline import Block as Block, Column as Column, Row as Row, timeline as timeline
from kqlib.workshop.view.wire import wire as wire
