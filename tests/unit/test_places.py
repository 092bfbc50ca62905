"""Where things are kept: the environment decides, then the operating system's habit; files change all at once."""

import os
import stat
import sys
from pathlib import Path

import pytest

from kqlib.runtime import places

CACHE, STATE = places.cache, places.state


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A home directory of this test's own, no variable set, Linux."""
    for name in ("KQ_CACHE", "KQ_STATE", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("place", "platform", "env", "expected"),
    [
        (CACHE, "linux", {}, ".cache/kqlib"),
        (CACHE, "linux", {"XDG_CACHE_HOME": "~/xdg"}, "xdg/kqlib"),
        (CACHE, "linux", {"XDG_CACHE_HOME": "~/xdg", "KQ_CACHE": "~/mine"}, "mine"),
        (CACHE, "linux", {"KQ_CACHE": ""}, ".cache/kqlib"),
        (CACHE, "linux", {"KQ_CACHE": "beside"}, "beside"),
        (CACHE, "darwin", {"XDG_CACHE_HOME": "~/xdg"}, "Library/Caches/kqlib"),
        (STATE, "linux", {}, ".local/state/kqlib"),
        (STATE, "linux", {"XDG_STATE_HOME": "~/xdg"}, "xdg/kqlib"),
        (STATE, "linux", {"XDG_STATE_HOME": "~/xdg", "KQ_STATE": "~/mine"}, "mine"),
        (STATE, "darwin", {}, "Library/Application Support/kqlib"),
    ],
)
def test_a_place_is_what_its_variable_names_else_the_systems_habit(monkeypatch, place, platform, env, expected):
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert place() == Path.home() / expected
    assert place().is_dir()
    assert place().is_absolute()  # it goes to child processes that start elsewhere


def test_a_place_that_cannot_be_made_says_which_variable_names_another(monkeypatch, home):
    (home / "file").touch()
    monkeypatch.setenv("KQ_CACHE", str(home / "file" / "below"))
    with pytest.raises(OSError, match=r"Not a directory\. Let KQ_CACHE name a directory .*below"):
        places.cache()


def test_only_its_owner_can_look_into_the_state():
    mode = stat.S_IMODE(places.state().stat().st_mode)
    assert mode == 0o700
    assert stat.S_IMODE(places.cache().stat().st_mode) & 0o077 == 0o777 & ~_umask() & 0o077


@pytest.mark.parametrize(
    ("beside", "cwd", "expected"),
    [
        ("notebooks", ".", "package"),
        ("notebooks", "elsewhere/notebooks/solutions", "package"),  # the package's own checkout first
        (None, "elsewhere/notebooks/solutions", "elsewhere"),
        (None, "elsewhere/notebooks", "elsewhere"),
        (None, "elsewhere", "elsewhere"),
        (None, ".", None),
    ],
)
def test_the_repo_is_around_the_package_else_around_the_current_directory(monkeypatch, home, beside, cwd, expected):
    (home / "package" / "kqlib").mkdir(parents=True)
    (home / "elsewhere" / "notebooks" / "solutions").mkdir(parents=True)
    if beside:
        (home / "package" / beside).mkdir()
    monkeypatch.setattr(places, "__file__", str(home / "package" / "kqlib" / "runtime" / "places.py"))
    monkeypatch.chdir(home / cwd)
    assert places.repo() == (home / expected if expected else None)


@pytest.mark.parametrize("breaks", ["write", "replace"])
def test_a_write_that_fails_leaves_the_old_text_and_no_litter(monkeypatch, home, breaks):
    path = home / "progress.json"
    places.write_atomic(path, "old")

    def no_replace(*_):
        raise OSError("disk full")

    if breaks == "replace":
        monkeypatch.setattr(os, "replace", no_replace)
    with pytest.raises((OSError, UnicodeEncodeError)):
        places.write_atomic(path, "\ud800" if breaks == "write" else "new")  # a lone surrogate is no UTF-8
    assert path.read_text() == "old"
    assert os.listdir(home) == ["progress.json"]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
