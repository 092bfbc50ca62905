"""What the course needs and production does not: a Kafka in seconds, labs, pictures, exercises, scores.

Only three places outside import this package, each when it is first needed: `kqlib/__init__.py`, `kafka.connect` and `command/`.
A test of the import graph keeps it so.
"""
