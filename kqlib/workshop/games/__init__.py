"""The example that runs through the notebooks: match days of football and basketball, in four schema versions (data/).

`day.py` has one match day as events; `seasons.py` has seasons in as many rows as one likes, late and broken ones too.
"""

from kqlib.workshop.games import seasons
from kqlib.workshop.games.day import (
    BASKETBALL as BASKETBALL,
    FOOTBALL as FOOTBALL,
    REFUSED as REFUSED,
    SPORTS as SPORTS,
    VERSIONS as VERSIONS,
    Event as Event,
    events as events,
    schema as schema,
    values as values,
)

season = seasons.rows
