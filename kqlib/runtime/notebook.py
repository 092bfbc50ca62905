"""Is this a notebook? An output of its cell that can be updated.

In:  nothing. Out: IPython's display handle.
"""

from __future__ import annotations

import sys
from typing import Any


def display_handle() -> Any:
    """An empty output of the running cell: `handle.update({"text/plain": "…"}, raw=True)`. None outside of a notebook."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    if type(get_ipython()).__name__ != "ZMQInteractiveShell":
        return None
    return display({"text/plain": ""}, raw=True, display_id=True)
