"""The site's frame: `make site` builds README, docs/ and the notebooks with their stored outputs into build/site."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
os.environ |= {"COLUMNS": "100", "KQ_SITE": "default"}  # the help of commands is the same on every machine

import generated  # noqa: E402

project = "kqlib"
extensions = ["myst_nb"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "data/*.md", "notebooks/*.ipynb"]
exclude_patterns = [".*", "build", "my", "dist", "tests", "kqlib"]
html_theme = "furo"
html_title = "kqlib"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_extra_path = ["_start"]  # index.html, which leads to docs/index.html
html_copy_source = False
html_show_copyright = html_show_sphinx = False
html_use_index = False
nb_execution_mode = "off"
myst_heading_anchors = 4
GENERATED = {
    "docs/names": ("<!-- every public name -->", generated.names),
    "docs/kq": ("<!-- every command -->", generated.commands),
}


def prepared(app: Sphinx, name: str, source: list[str]) -> None:
    """A page before it is read: with its generated part, its films, and links to headings as the site has them."""
    if name in GENERATED:
        place, make = GENERATED[name]
        source[0] = source[0].replace(place, make())
    if name.startswith("notebooks/"):
        source[0] = generated.for_reading(source[0])
    source[0] = generated.for_the_site(source[0])


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("source-read", prepared)
