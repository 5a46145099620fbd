"""A client runs anywhere: it imports nothing that only a node needs or only Linux has."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from gossipkv import unbuilt
from tests.ci.tidy.source import ROOT

# Modules that other systems lack, and modules that a client should not load.
ABSENT = ("fcntl", "trio", "lz4", "click", "rich")
PARTS = (
    "cli", "dataset", "demo", "environment", "gossip", "launcher", "node", "processes", "settings", "storage",
    "testing",
)  # fmt: skip

ALONE = """
import sys

class Absent:
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in {absent} or ".".join(name.split(".")[:2]) in {parts}:
            raise ImportError("a client asked for " + name)

sys.meta_path.insert(0, Absent())
{statement}
"""


def run_alone(statement: str) -> subprocess.CompletedProcess[str]:
    """Run a statement in a process in which only a client's modules can be imported."""
    parts = {f"gossipkv.{part}" for part in PARTS}
    code = ALONE.format(absent=set(ABSENT), parts=parts, statement=statement)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize(
    "statement", ["import gossipkv; gossipkv.blocking.connect", "from gossipkv.client import blocking, dispatcher"]
)
def test_a_client_needs_only_its_own(statement: str) -> None:
    """Importing the client works without fcntl, Trio and the parts of a node."""
    done = run_alone(statement)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("part", ["environment", "storage.sorted_file"])
def test_the_absent_are_absent(part: str) -> None:
    """The trap works: a part of a node cannot be imported behind it."""
    done = run_alone(f"import gossipkv.{part}")
    assert "a client asked for" in done.stderr


def test_setup_builds_what_a_client_needs() -> None:
    """Outside Linux setup.py builds the extensions of the client's packages, and the finder knows them."""
    for node in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CLIENT_PACKAGES":
            assert tuple(f"{package}." for package in ast.literal_eval(node.value)) == unbuilt.CLIENT_PACKAGES
            break
    else:
        pytest.fail("setup.py names no CLIENT_PACKAGES")
