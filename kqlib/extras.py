"""Packages that only a part of kqlib needs: one that is not installed is one sentence with the command to run."""

from __future__ import annotations

from importlib.util import find_spec

from kqlib.errors import NotAllowed


def check(extra: str, what: str, *packages: str) -> None:
    """`NotAllowed` unless these packages are installed. extra: what of kqlib brings them; what: the part that needs them."""
    for package in packages:
        if find_spec(package) is None:
            how = f'pip install "kqlib[{extra}]" (in a checkout: make venv)'
            raise NotAllowed(f"{what} needs {package}, which is not installed. Run {how}")
