"""Generated mutations: small changes of recently changed files, each run against the tests that mirror the file.

    python -m tests.nightly.mutants.generated [FILE...]

Without files, the package's files that changed in the last day of history are mutated. They share ten minutes, and
their mutations come in a random order; a mutation that fails no test is a survivor. A survivor is a question and no
failure: the change may be equivalent, or a test is missing. Cython is not mutated; its planted bugs are written by
hand.
"""

from __future__ import annotations

import ast
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.nightly.mutants.patched import Patching

SECONDS = 600.0
MIN_SHARE_S = 30  # The minimum for one file: less is hardly more than its tests without a mutation.
RUN_TIMEOUT_S = 120  # A mutation may loop without end, which counts as noticed.
OPPOSITES = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.In: ast.NotIn, ast.Is: ast.IsNot}
OPPOSITES |= {opposite: operator for operator, opposite in OPPOSITES.items()}


class Mutation(NamedTuple):
    """The text of a module with one change."""

    path: Path
    line: int
    change: str
    text: str

    def __str__(self):
        line = self.path.read_text().splitlines()[self.line - 1].strip()
        return f"{self.path}:{self.line}: {self.change}: {line}"


def changes(node):
    """Yield the changes of one node of the syntax tree: a name, the field, and its other value."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            pass
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "negated condition", "test", ast.UnaryOp(ast.Not(), test)
        case ast.Compare(ops=[operator]) if type(operator) in OPPOSITES:
            yield "other comparison", "ops", [OPPOSITES[type(operator)]()]
        case ast.BoolOp(op=operator):
            yield "and for or", "op", ast.Or() if isinstance(operator, ast.And) else ast.And()
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "dropped call", "value", ast.Constant(None)
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield "off by one", "value", number + 1
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield "early return", "body", [ast.Return()]


def mutations(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        for change, field, other in changes(node):
            before = getattr(node, field)
            setattr(node, field, other)
            yield Mutation(path, node.lineno, change, ast.unparse(tree))
            setattr(node, field, before)


def mirrors(path):
    folder = Path("tests/unit", *path.parts[1:-1])
    return sorted({*folder.glob(f"test_{path.stem}.py"), *folder.glob(f"test_{path.stem}_slow.py")})


def is_killed(path, text, tests):
    """True if the tests fail, or do not end, with this text in place of the file's."""
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    command = [sys.executable, "-m", "tests.nightly.mutants.generated", "--child"]
    given = json.dumps([module, text, list(map(str, tests))])
    try:
        ran = subprocess.run(command, input=given, text=True, capture_output=True, timeout=RUN_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return True
    return ran.returncode != 0


def survivors(tests_by_path, seconds, seed):
    """Return how many mutations were run in that time, and those that no test noticed.

    Raises:
        ValueError: The tests of a file fail without any mutation.
    """
    draw = random.Random(seed)
    paths = draw.sample(sorted(tests_by_path), len(tests_by_path))
    end, share_s = time.monotonic() + seconds, max(MIN_SHARE_S, seconds / max(1, len(paths)))
    ran, alive = 0, []
    for path in paths:
        until = min(end, time.monotonic() + share_s)
        if time.monotonic() >= until:
            break
        if is_killed(path, path.read_text(), tests_by_path[path]):
            raise ValueError(f"the tests of {path} fail without a mutation")
        drawn = list(mutations(path))
        draw.shuffle(drawn)
        for mutation in drawn:
            if time.monotonic() >= until:
                break
            ran += 1
            if not is_killed(path, mutation.text, tests_by_path[path]):
                alive.append(mutation)
    return ran, alive


def changed():
    """Return the package's files that changed in the last day of history and that tests mirror."""
    command = ["git", "log", "--since=1.day", "--diff-filter=AMR", "--name-only", "--format=", "--", "gossipkv/*.py"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [path for path in map(Path, sorted({*said.split()})) if path.exists()]


def report(paths, seconds=SECONDS):
    """Return the report on the mutations of these files: one line of numbers, and a line for each survivor."""
    seed = random.randrange(1 << 32)
    tests_by_path = {path: tests for path in paths if (tests := mirrors(path))}
    ran, alive = survivors(tests_by_path, seconds, seed)
    head = f"{ran} mutations of {len(tests_by_path)} files, {len(alive)} survivors, seed {seed}"
    return [head, *map(str, alive)]


def child():
    """Run the tests on the given text; return the exit status of pytest."""
    module, text, tests = json.load(sys.stdin)
    sys.meta_path.insert(0, Patching(module, text))
    return pytest.main(["-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", *tests])


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        sys.exit(child())
    sys.stdout.write("\n".join([*report([Path(name) for name in sys.argv[1:]] or changed()), ""]))
