"""The example that runs through the notebooks: match days of football and basketball, in four schema versions (data/).

`day.py` has one match day as events; `seasons.py` has seasons in as many rows as one likes, late and broken ones too.
"""

from kqlib.workshop.games.day import (
    BASKETBALL,
    FOOTBALL,
    REFUSED,
    SPORTS,
    VERSIONS,
    Event,
    events,
    schema,
    values,
)
from kqlib.workshop.games.seasons import rows as season

__all__ = [
    "BASKETBALL",
    "FOOTBALL",
    "REFUSED",
    "SPORTS",
    "VERSIONS",
    "Event",
    "events",
    "schema",
    "season",
    "values",
]
