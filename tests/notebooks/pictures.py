"""The pictures of docs/road.md: what the cell tagged `readme` of each notebook shows.

    python -m tests.notebooks.pictures     # the second half of `make notebooks`

In: the stored notebooks. Out: notebooks/pictures/NN.svg, rewritten only where they differ.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def picture(notebook: Path) -> str | None:
    """The SVG of the cell tagged `readme`; None when no cell is, or it shows none."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if "readme" in cell["metadata"].get("tags", []):
            html = "".join("".join(out.get("data", {}).get("text/html", "")) for out in cell["outputs"])
            if found := re.search(r'src="data:image/svg\+xml,([^"]*)"', html):
                return unquote(found[1])
    return None


def pictures() -> dict[Path, str]:
    """Each picture's file and what it should hold."""
    found = {path: picture(path) for path in sorted(NOTEBOOKS.glob("[0-9][0-9]-*.ipynb"))}
    return {NOTEBOOKS / "pictures" / f"{path.name[:2]}.svg": svg for path, svg in found.items() if svg}


if __name__ == "__main__":
    for file, svg in pictures().items():
        file.parent.mkdir(exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != svg:
            file.write_text(svg, encoding="utf-8")
            print(f"{file.name} changed")
