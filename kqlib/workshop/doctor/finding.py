"""What a check found, and its words."""

from __future__ import annotations

from dataclasses import dataclass

from kqlib import text

WIDTH = 12  # of the column of names: 'dead letters' is the longest


@dataclass(frozen=True)
class Finding:
    """What one check found. ok: None where it was not tried; remedy: what to do when it is not ok, one thing a line."""

    name: str
    ok: bool | None
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        """As `kq doctor` shows it."""
        sign = {True: "✓", False: "✗", None: "–"}[self.ok]
        lines = [*self.what.splitlines(), *(f"→ {each}" for each in self.remedy.splitlines())]
        what = f"\n{'':{WIDTH + 4}}".join(lines)
        return f"{sign} {self.name:<{WIDTH}}  {what}"


def words(error: BaseException) -> str:
    """What an error says, on one line."""
    return " ".join(text.words(error).split())
