"""What a person reads when something is wrong: every error says what happened, with its facts, in this process or another."""

import ast
import json
import pickle
import string
import subprocess
import sys
from pathlib import Path

import pytest

import kqlib
from kqlib import errors
from kqlib.errors import KqError, NotAllowed
from kqlib.virtual import errors as virtual

KINDS = [
    kind
    for part in (errors, virtual)
    for kind in vars(part).values()
    if isinstance(kind, type) and issubclass(kind, KqError) and kind.__module__ == part.__name__
]
SAMPLE = {"seconds": 2.5, "size": 7, "limit": 5, "have": 4, "want": 2, "missing": 1, "total": 95, "broker": 1}


def blanks(kind: type[KqError]) -> set[str]:
    """The facts that a message has blanks for."""
    return {name for _, name, _, _ in string.Formatter().parse(kind.says) if name}


def sample(kind: type[KqError]) -> KqError:
    return kind(**{name: SAMPLE.get(name, f"<{name}>") for name in blanks(kind)})


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_says_its_sentence_and_its_facts_are_attributes(kind):
    error = sample(kind)
    assert kind.__doc__ == kind.says == vars(kind)["says"]
    assert "{" not in str(error)
    for name in blanks(kind):
        fact = SAMPLE.get(name, f"<{name}>")
        assert f"{fact:g}" in str(error) if isinstance(fact, float) else str(fact) in str(error)
        assert getattr(error, name) == error.facts[name] == fact
    assert isinstance(error, KqError)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_has_more_to_say_than_why_says_what_to_do_in_whole_sentences(kind):
    message = kind.says
    assert message == "{why}" or (message.strip()[-1] in ".}?" and "\n\n" not in message)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_the_same_in_another_process(kind):
    error = sample(kind)
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), other.facts) == (type(error), str(error), error.facts)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NotAllowed("that cannot be"), "that cannot be"),
        (NotAllowed(why="{braces} stay"), "{braces} stay"),
        (KqError(), ""),
    ],
)
def test_a_message_reads_like_this(error, message):
    assert str(error) == message


OPTIMIZED = """
import json, sys
import kqlib.virtual.errors
from kqlib.errors import KqError
def below(kind): return [kind, *(one for sub in kind.__subclasses__() for one in below(sub))]
facts = json.loads(sys.argv[1])
print(json.dumps({kind.__name__: str(kind(**facts[kind.__name__])) for kind in below(KqError)}))
"""


def test_python_without_docstrings_says_the_same_sentences():
    facts = {kind.__name__: {name: SAMPLE.get(name, f"<{name}>") for name in blanks(kind)} for kind in KINDS}
    ran = subprocess.run(
        [sys.executable, "-OO", "-c", OPTIMIZED, json.dumps(facts)], capture_output=True, text=True, check=True
    )
    assert json.loads(ran.stdout) == {kind.__name__: str(sample(kind)) for kind in KINDS}


def raised() -> list[tuple[str, type[KqError], ast.Call]]:
    """Every place in the package where an error is made."""
    project, found = Path(kqlib.__file__).parent, []
    for file in sorted(project.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", None))
                kind = getattr(errors, name or "", None)
                if kind in KINDS:
                    found.append((f"{file.relative_to(project)}:{node.lineno}", kind, node))
    return found


def test_who_makes_an_error_gives_it_every_fact_of_its_message():
    places = raised()
    assert len(places) > 30
    lacking = {}
    for place, kind, call in places:
        given = {keyword.arg for keyword in call.keywords} | ({"why"} if call.args else set())
        if None not in given and not blanks(kind) <= given:  # None: **facts, which nobody can read here
            lacking[place] = blanks(kind) - given
    assert lacking == {}
