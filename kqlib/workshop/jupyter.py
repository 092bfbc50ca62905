"""JupyterLab on the notebooks of this checkout, with the same settings for every reader. The reader's own settings stay untouched.

In:  a notebook (its number, its name or a file). Out: this process becomes JupyterLab, which then has the terminal and the signals.
A number or a name means the reader's own copy, in my/.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

from kqlib.errors import NotAllowed
from kqlib.runtime import places
from kqlib.text import near
from kqlib.workshop import copies

FIRST = "00"
OF_A_HOME = (
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "MPLCONFIGDIR",
)  # what is written at a start


def become(notebook: str | None, browser: bool, extra: Sequence[str]) -> NoReturn:
    """Turn this process into JupyterLab, opened on a notebook (None: the first)."""
    repo = checkout()
    if find_spec("jupyterlab") is None:
        raise NotAllowed("JupyterLab is not installed for this Python: `make lab` sets everything up")
    chosen = choose(repo, notebook or FIRST)
    if chosen.parts[0] == copies.folder(repo).name and (old := copies.make(repo)):
        print(f"A newer edition of {', '.join(old)} is here. `kq lab --update` brings it and keeps your own cells.")
    words = command(repo, chosen, browser, extra)
    sys.stdout.flush()
    os.execve(words[0], words, environment(repo, os.environ))


def checkout() -> Path:
    """The directory that holds notebooks/ and the reader's my/. Without a checkout: one made here of what the wheel carries."""
    if repo := places.repo():
        kept = mine if (mine := copies.folder(repo)).exists() else repo
        if not os.access(kept, os.W_OK):
            raise NotAllowed(
                f"you may not write into {kept}, where `kq lab` keeps your notebooks. Nothing was changed. Clone kqlib into a "
                "directory of your own, and type `make lab` there"
            )
        return repo
    carried, here = Path(sys.prefix, "share", "kqlib"), Path.cwd() / "kqlib-notebooks"
    if not carried.is_dir():
        raise NotAllowed("The notebooks are not here: go into the checkout (git clone brings it) and type `make lab`")
    shutil.copytree(carried, here, dirs_exist_ok=True)
    print(f"The notebooks are in {here}.")
    return here


def choose(repo: Path, asked: str) -> Path:
    """The notebook that is meant by '3', '03', '03-keys' or a file's name; relative to the checkout."""
    file = Path(asked).resolve()
    if file.is_file() and file.suffix == ".ipynb" and file.is_relative_to(repo):
        return file.relative_to(repo)
    there = {path.stem: path for path in sorted((repo / "notebooks").glob("*.ipynb"))}
    stem = Path(asked).stem if asked.endswith(".ipynb") else asked
    for name, path in there.items():
        if stem == name or (stem.isdigit() and name.split("-")[0] == stem.zfill(2)):
            return (copies.folder(repo) / path.name).relative_to(repo)
    hint = near(stem, there) or f"; there are {', '.join(there) or 'none'}"
    raise NotAllowed(f"there is no notebook {asked!r} in this checkout{hint}")


def command(repo: Path, notebook: Path, browser: bool, extra: Sequence[str]) -> list[str]:
    """The command to run. It listens on loopback only, so a container's root may run it too. Options in `extra` replace ours."""
    ours = {
        "--ServerApp.root_dir": str(repo),
        "--LabApp.default_url": f"/lab/tree/{quote(notebook.as_posix())}",
        "--ServerApp.ip": "127.0.0.1",
        "--ServerApp.allow_root": "True",
    }
    aliases = {
        "--ServerApp.ip": ("--ip",),
        "--ServerApp.root_dir": ("--notebook-dir",),
        "--ServerApp.allow_root": ("--allow-root",),
    }
    given = {word.partition("=")[0] for word in extra}
    kept = [f"{name}={value}" for name, value in ours.items() if not given & {name, *aliases.get(name, ())}]
    return [sys.executable, "-P", "-m", "jupyterlab", *kept, *([] if browser else ["--no-browser"]), *extra]


def environment(repo: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The environment of JupyterLab and its kernels: the checkout's profile and defaults come first, `kq` is found in cells."""
    home = {} if os.access(Path.home(), os.W_OK) else {name: str(places.state() / "jupyter") for name in OF_A_HOME}
    return {
        **home,
        **env,
        "IPYTHONDIR": str(repo / ".ipython"),
        "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, [str(repo / ".jupyter"), env.get("JUPYTER_CONFIG_PATH")])),
        "JUPYTER_PREFER_ENV_PATH": "1",  # this Python's kernel, whatever kernels the user has installed elsewhere
        "PATH": os.pathsep.join(filter(None, [str(Path(sys.executable).parent), env.get("PATH")])),
    }
