"""How fast and how big: the figures of README.md and docs/costs.md, printed by `make bench` and never asserted."""
