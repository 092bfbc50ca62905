"""Values that an answer gave: which count as right, and what they look like in a sentence.

In:  any value, also one whose == or repr raises. Out: a yes or no, and texts that are the same on every run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any


def same(got: Any, expected: Any) -> bool:
    """Whether a value counts as right: a tuple may be a list, but True is not 1, '3' is not 3, and 3.0 is not 3."""
    got = got.item() if getattr(got, "shape", None) == () else got  # numpy's own numbers are numbers
    if isinstance(got, bool) or isinstance(expected, bool) or (isinstance(got, float) and isinstance(expected, int)):
        return type(got) is type(expected) and got == expected
    if isinstance(expected, float):
        return isinstance(got, int | float) and math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(got, list | tuple) and isinstance(expected, list | tuple):
        return len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(got, dict) and isinstance(expected, dict):
        return got.keys() == expected.keys() and all(same(got[key], expected[key]) for key in expected)
    with suppress(Exception):  # an array answers == with an array: then it is not what was expected
        return bool(got == expected)
    return False


_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    dict: ("{", "}"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}


def shown(value: Any, space: int = 70) -> str:
    """A value as a text that is the same on every run and fits; what is left out is counted."""
    if isinstance(value, str | bytes):
        kept = value[:space]
        unit = "characters" if isinstance(value, str) else "bytes"
        return repr(value) if kept == value else f"{kept!r}… {len(value) - space:,} more {unit}"
    if type(value) in _BRACKETS:
        return _shown_items(value, space)
    text = clean(repr, value)
    return text if len(text) <= space else f"{text[:space]}… {len(text) - space:,} more characters"


def _shown_items(value: Any, space: int) -> str:
    """A list, tuple, set or dict: as many items as fit, and how many more there are."""
    if space < 16:
        return "…"  # nested too deep, or in itself
    if isinstance(value, dict):
        texts: Iterable[str] = (f"{shown(key, space - 8)}: {shown(item, space - 8)}" for key, item in value.items())
    else:
        texts = (shown(item, space - 8) for item in value)
    if isinstance(value, set | frozenset):
        texts = sorted(texts)  # a set of strings has another order in every process
    parts: list[str] = []
    for text in texts:
        if parts and len(", ".join(parts)) + len(text) > space:
            parts.append(f"… {len(value) - len(parts):,} more")
            break
        parts.append(text)
    left, right = _BRACKETS[type(value)]
    inside = ", ".join(parts) + ("," if type(value) is tuple and len(value) == 1 else "")
    return f"{left}{inside}{right}" if value else repr(value)


def clean(make: Callable[[Any], str], value: Any) -> str:
    """A value's repr or str on one line and without addresses, which change with every run."""
    try:
        text = make(value)
    except Exception as error:
        return f"<{type(value).__name__} whose {make.__name__} raised {type(error).__name__}>"
    return " ".join(re.sub(r"0x[0-9a-fA-F]{9,}", "0x…", re.sub(r" at 0x[0-9a-fA-F]+", "", text)).split())
