"""A function of a user's own file.

In:  FILE:NAME, as it was typed. Out: that function. NotAllowed: there is none, or its file cannot be loaded.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kqlib.errors import NotAllowed


def function(text: str, wrong: str) -> Callable[..., Any]:
    """The function that is named: mend.py:fix. wrong: what an error says of a text that names no file, with a place for the text."""
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not file or not path.is_file():
        raise NotAllowed(wrong.format(text))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever is wrong in that file
        raise NotAllowed(f"{file} cannot be loaded: {type(error).__name__}: {error}") from None
    found: Any = getattr(module, name, None)
    if not callable(found):
        raise NotAllowed(f"{file} has no function {name!r}")
    return found
