""".devcontainer/devcontainer.json without an engine: what it names is there, and it agrees with the image that it builds.

In:  that file, compose/Dockerfile, the commands of kqlib. Out: a list of sentences, one a problem; mistakes are planted and named.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kqlib.command.main import parsers

ROOT = Path(__file__).parents[2]
FILE = ROOT / ".devcontainer" / "devcontainer.json"
DOCKERFILE = (ROOT / "compose" / "Dockerfile").read_text()
KNOWN = {  # names of the specification that this file uses
    *("name", "build", "workspaceFolder", "workspaceMount", "remoteUser", "hostRequirements", "containerEnv"),
    *("postCreateCommand", "customizations"),
}


def read() -> dict[str, Any]:
    """The file, which may have comments on lines of their own."""
    found: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    return found


def problems(file: dict[str, Any]) -> Iterator[str]:
    """Everything that is wrong, a sentence each."""
    yield from (f"{name} is no setting that this test knows" for name in file.keys() - KNOWN)
    for name in ("dockerfile", "context"):
        if not (FILE.parent / file["build"][name]).exists():
            yield f"{name} {file['build'][name]} is not there"
    [work] = re.findall(r"^WORKDIR (\S+)", DOCKERFILE, re.MULTILINE)
    if not file["workspaceFolder"] == work == dict(re.findall(r"(\w+)=([^,]+)", file["workspaceMount"]))["target"]:
        yield f"the checkout is not at {work}, where the image has it"
    [user] = re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE)
    if file["remoteUser"] != user:
        yield f"the user is {file['remoteUser']}, and the image has {user}"
    for name, path in file["containerEnv"].items():
        if not (ROOT / Path(path).relative_to(work)).is_dir():
            yield f"{name} {path} is not in the checkout"
    command = file["postCreateCommand"]
    yield from (f"there is no module {name}" for name in re.findall(r"-m (\S+)", command) if find_spec(name) is None)
    for word, option in re.findall(r"\bkq (\w+) (--\w+)", command):
        if word not in parsers()[1] or option not in parsers()[1][word]._option_string_actions:
            yield f"there is no kq {word} {option}"
    python = file["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    if python != "/usr/local/bin/python" or not re.match(r"(#.*\n)*FROM python:", DOCKERFILE):
        yield f"{python} is not the Python of the image"


def test_the_file_has_no_problem() -> None:
    assert list(problems(read())) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("postCreateComand", "true", "postCreateComand is no setting"),
        ("build", {"dockerfile": "Dockerfile", "context": ".."}, "dockerfile Dockerfile is not there"),
        ("workspaceFolder", "/workspaces/kqlib", "the checkout is not at /srv/kqlib"),
        ("remoteUser", "vscode", "the user is vscode, and the image has kq"),
        ("containerEnv", {"IPYTHONDIR": "/srv/kqlib/.ipythn"}, "IPYTHONDIR /srv/kqlib/.ipythn is not in the checkout"),
        ("postCreateCommand", "python -m kqlib.workshop.clusters", "there is no module kqlib.workshop.clusters"),
        ("postCreateCommand", "kq lab --updat", "there is no kq lab --updat"),
    ],
)
def test_a_mistake_is_named(name: str, value: Any, words: str) -> None:
    wrong = copy.deepcopy(read()) | {name: value}
    assert any(each.startswith(words) for each in problems(wrong))
