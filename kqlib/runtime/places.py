"""Where kqlib keeps things on this machine: no other module decides on a directory.

In: the environment (KQ_CACHE, KQ_STATE, XDG_CACHE_HOME, XDG_STATE_HOME) and the operating system's habit.
Out: `cache()` for what can be fetched again (jars), `state()` for what cannot (progress.json, up.json), `machine()`, an id of that
state. `repo()` is the checkout with the notebooks, if there is one. `write_atomic` leaves the old text or the new one, never half.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO


def cache() -> Path:
    """The directory for what can be fetched again; made if it is not there."""
    return _made("KQ_CACHE", "XDG_CACHE_HOME", "~/.cache", "~/Library/Caches", 0o777)


def state() -> Path:
    """The directory for what this user did; made if it is not there, readable by no other user."""
    return _made("KQ_STATE", "XDG_STATE_HOME", "~/.local/state", "~/Library/Application Support", 0o700)


def machine() -> str:
    """An id of this state directory, made once: two machines with one login name and one host name differ in it."""
    file = state() / "machine"
    if not file.exists():
        temp = file.with_name(f".machine.{secrets.token_hex(4)}")
        temp.write_text(secrets.token_hex(4), encoding="utf-8")
        with suppress(FileExistsError):  # two at once: the first id counts, and it is whole
            os.link(temp, file)
        temp.unlink()
    return file.read_text(encoding="utf-8").strip()


def repo() -> Path | None:
    """The checkout that holds the notebooks: around this package, else around the current directory, else None."""
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "notebooks").is_dir():
        return checkout
    here = Path.cwd()
    return next((at for at in (here, *here.parents) if (at / "notebooks" / "solutions").is_dir()), None)


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old text or the new one, whatever happens in between."""
    temp = path.with_name(f".{path.name}.{secrets.token_hex(4)}")  # same directory: os.replace cannot cross disks
    try:
        temp.write_text(text, encoding="utf-8")
        os.replace(temp, path)
    finally:
        temp.unlink(missing_ok=True)


def locked(path: Path, kind: int = fcntl.LOCK_EX) -> IO[str]:
    """Open a file and lock it until it is closed or this process ends. BlockingIOError: another has it, and `kind` does not wait."""
    file = path.open("a")
    try:
        fcntl.flock(file, kind)
    except BaseException:
        file.close()
        raise
    return file


def words(error: OSError) -> str:
    """What the system says, without its number. What cannot be written in one of our directories has a variable that moves it."""
    text = ": ".join(str(word) for word in (error.filename, error.strerror or error) if word)
    for variable, place in ("KQ_CACHE", cache), ("KQ_STATE", state):
        with suppress(OSError):  # one that cannot be made has these words already
            if error.errno in {errno.EACCES, errno.EROFS} and Path(error.filename or "/").is_relative_to(place()):
                return f"{text}. Let {variable} name a directory that you may write to"
    return text


def _made(ours: str, xdg: str, linux: str, mac: str, mode: int) -> Path:
    """The directory that the first of these names; an empty variable counts as unset."""
    if named := os.environ.get(ours):
        place = Path(named).expanduser().absolute()
    else:
        base = mac if sys.platform == "darwin" else os.environ.get(xdg) or linux
        place = Path(base).expanduser().absolute() / "kqlib"
    try:
        place.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        why = f"{error.strerror}. Let {ours} name a directory that you may write to"
        raise OSError(error.errno, why, str(place)) from None
    return place
