"""What the course needs and production does not: a Kafka in seconds, labs, pictures, exercises, scores.

Nothing outside imports this package, but for three doors that open it when they are asked to: `kqlib/__init__.py`, `kafka.connect`
and `command/`. `tests/unit/test_house.py` keeps it so.
"""
