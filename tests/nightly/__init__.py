"""The long tests of a night, in parts that can be interrupted: `make nightly PART=…`, or `python -m tests.nightly`."""
