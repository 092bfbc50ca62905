"""`make notebooks` changes no byte of the pack: each notebook made again is the file that is stored.

A file of its own, since it is the one check here that mostly repeats others: the gate and nbval together see all but the
order of a cell's outputs and the pixels of a PNG. Leave it out where a minute counts (`--ignore`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks import gate, regenerate


@pytest.mark.parametrize("path", gate.notebooks(), ids=lambda path: path.name)
def test_making_a_notebook_again_gives_the_stored_bytes(path: Path) -> None:
    stored, new = path.read_text(encoding="utf-8"), regenerate.made(path)
    assert not new.wrong, "\n".join(new.wrong)
    differs = regenerate.difference(stored, new.text)
    assert not differs, f"run make notebooks, then read the diff:\n{differs}"
