"""Small faults in Python sources, one at a time, written by Python's own `ast`.

In:  a source. Out: every mutant of it: where, what it was, what it is, and the changed source.

    comparison   a < b    a <= b     ==, !=, <, <=, >, >=, is, in
    boolean      a and b  a or b
    arithmetic   a + b    a - b      +, -, *, /, //, %
    constant     0        1          any other number: 0; True: False
    return       return x return None
    delete       a statement: a call, an assignment to an attribute or an item, +=, raise, break, continue, del
    not          not a    a          and the other way round in a condition that is no comparison

Left alone is what no test can see or what is not behaviour: annotations, docstrings, decorators, `if TYPE_CHECKING`, assertions,
and the inside of f-strings, where Python 3.11 does not know the places.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
SKIPPED = {  # fields that hold no behaviour
    ast.AnnAssign: {"annotation"},
    ast.arg: {"annotation"},
    ast.FunctionDef: {"returns", "decorator_list"},
    ast.AsyncFunctionDef: {"returns", "decorator_list"},
    ast.ClassDef: {"decorator_list"},
}


@dataclass(frozen=True)
class Mutant:
    """One fault: `before` in the line `line`, in the function `scope`, becomes `after`."""

    path: str
    operator: str
    scope: str
    number: int
    line: str
    before: str
    after: str
    start: int  # in bytes
    end: int

    def applied(self, source: str) -> str:
        """The source with this fault."""
        data = source.encode()
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()

    def __str__(self) -> str:
        before, after = (" ".join(words.split())[:100] for words in (self.before, self.after))
        return f"{self.path}:{self.number} {self.operator}: {before} → {after}"


def mutants(path: str, source: str) -> list[Mutant]:
    """Every mutant of a source; a few of them may not compile."""
    data = source.encode()
    lines = data.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    found = []
    for node, scope in nodes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before, line = data[start:end].decode(), lines[node.lineno - 1].decode().strip()
        for operator, make in OPERATORS.items():
            found += [
                Mutant(path, operator, scope, node.lineno, line, before, after, start, end) for after in make(node)
            ]
    return found


def compiles(source: str) -> bool:
    """Whether Python takes this source."""
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def nodes(node: ast.AST, scope: str = "") -> Iterator[tuple[Any, str]]:
    """Every node that has a place and is behaviour, with the function or class around it."""
    for name, value in ast.iter_fields(node):
        if name in SKIPPED.get(type(node), ()):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Assert):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
                continue
            child.decides = name == "test"
            inner = f"{scope}.{child.name}".strip(".") if isinstance(child, NAMED) else scope
            if hasattr(child, "lineno"):
                yield child, inner
            yield from nodes(child, inner)


NAMED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def written(node: ast.expr) -> str:
    """An expression as it can stand anywhere."""
    return f"({ast.unparse(node)})"


def comparison(node: ast.AST) -> Iterator[str]:
    """Each comparison turned into its neighbour."""
    for n, op in enumerate(node.ops if isinstance(node, ast.Compare) else []):
        other = copy.deepcopy(node)
        other.ops[n] = COMPARISONS[type(op)]()
        yield written(other)


def boolean(node: ast.AST) -> Iterator[str]:
    """`and` for `or`, `or` for `and`."""
    if isinstance(node, ast.BoolOp):
        op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield written(ast.BoolOp(op, node.values))


def arithmetic(node: ast.AST) -> Iterator[str]:
    """Another operation; % with a text on its left is left alone."""
    text = (
        isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant) and isinstance(node.left.value, str | bytes)
    )
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not text:
        yield written(ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right))


def constant(node: ast.AST) -> Iterator[str]:
    """0 becomes 1 and every other number 0; True and False change places."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "0" if node.value else "1"


def returned(node: ast.AST) -> Iterator[str]:
    """Nothing is returned."""
    value = node.value if isinstance(node, ast.Return) else None
    if value and ast.unparse(value) != "None":
        yield "return None"


def deleted(node: ast.AST) -> Iterator[str]:
    """The statement does nothing."""
    calls = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    targets = node.targets if isinstance(node, ast.Assign) else []
    inside = bool(targets) and all(isinstance(each, ast.Attribute | ast.Subscript) for each in targets)
    if calls or inside or isinstance(node, ast.AugAssign | ast.Raise | ast.Break | ast.Continue | ast.Delete):
        yield "pass"


def negated(node: ast.AST) -> Iterator[str]:
    """`not` taken away, or put before a name, a call and the like that decides."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield written(node.operand)
    elif getattr(node, "decides", False) and not isinstance(node, ast.Compare | ast.BoolOp):
        yield written(ast.UnaryOp(ast.Not(), node))


OPERATORS: dict[str, Callable[[Any], Iterator[str]]] = {
    "comparison": comparison,
    "boolean": boolean,
    "arithmetic": arithmetic,
    "constant": constant,
    "return": returned,
    "delete": deleted,
    "not": negated,
}
