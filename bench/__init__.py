"""How fast and how big: figures that this project's README quotes, printed by `make bench` and never asserted."""
