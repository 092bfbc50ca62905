"""A notebook's cells run again up to a named step, for `kq.lab(name, at="step")`.

In:  a notebook in notebooks/, a step. Out: the names that its cells make.
"""

from __future__ import annotations

import json
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.runtime import places

# the notebooks whose cells are running now: their own kq.lab() makes the lab
replaying: list[str] = []


def steps(name: str, at: str) -> list[tuple[str, bool]]:
    """The code cells before the cell tagged `step:NAME`: their code, and whether it is meant to fail."""
    repo = places.repo()
    file = repo / "notebooks" / f"{name}.ipynb" if repo else None
    if file is None or not file.exists():
        raise NotAllowed(f"at={at!r} replays notebooks/{name}.ipynb, which is not here")
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    tags = [cell.get("metadata", {}).get("tags", []) for cell in cells]
    names = [tag.removeprefix("step:") for found in tags for tag in found if tag.startswith("step:")]
    if at not in names:
        raise NotAllowed(f"notebook {name} has no step {at!r}; it has {', '.join(names) or 'none'}")
    here = next(i for i, found in enumerate(tags) if f"step:{at}" in found)
    code = [i for i, cell in enumerate(cells[:here]) if cell["cell_type"] == "code"]
    return [("".join(cells[i]["source"]), "raises-exception" in tags[i]) for i in code]


def replay(name: str, cells: list[tuple[str, bool]], namespace: dict[str, Any]) -> None:
    """Run these cells in a namespace, without their output."""
    from IPython.utils.capture import capture_output

    replaying.append(name)
    try:
        for source, fails in cells:
            with capture_output():
                try:
                    exec(compile(source, f"<{name}>", "exec", dont_inherit=True), namespace)
                except Exception:
                    if not fails:
                        raise
    finally:
        replaying.pop()
