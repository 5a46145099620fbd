"""Imports go one way: checks beyond import-linter (its contracts are in pyproject.toml), and proof that it works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.ci.tidy import architecture
from tests.ci.tidy.planted import plant
from tests.ci.tidy.source import ROOT, sources

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ci.tidy.source import Source

CONTRACTS = architecture.contracts(ROOT)
DEPTH = {part: depth for depth, floor in enumerate(architecture.built(ROOT)) for part in floor}
PACKAGE = sources(ROOT, "gossipkv", "src_ext/gossipkv")
PURE = ("client", "keyspace", "replication", "wire")  # The extensions of these parts are cores as well.
WORLD = {*CONTRACTS[-1]["forbidden_modules"], "tests"}


def upwards(tree: list[Source]) -> list[str]:
    """Report imports in Cython and stubs that do not go down the floors, and cores that import the world."""
    wrong = []
    for source in tree:
        for found in source.imports if source.path.suffix != ".py" else []:
            top, _, below = found.path.partition(".")
            part = below.partition(".")[0]
            goes_up = top == "gossipkv" and part != source.package and DEPTH.get(part, 0) <= DEPTH[source.package]
            if goes_up or (top in WORLD and source.package in PURE):
                wrong.append(f"{source.where}:{found.line}: imports {found.path}")
    return wrong


def strangers(tree: list[Source]) -> list[str]:
    """Report Python imports of an extension or another private module from outside its package."""
    return [
        f"{source.where}:{found.line}: imports {found.path}"
        for source in tree
        for found in source.imports
        if not found.cimport and (private := re.match(r"(gossipkv(?:\.[a-z]\w*)*)\._(?!_)", found.path))
        if not f"{source.module}.".startswith(f"{private[1]}.")
    ]


def test_cython_and_stubs_import_what_stands_lower() -> None:
    """Cython and stubs obey the floors of the first contract, and private modules stay private."""
    assert (upwards(PACKAGE), strangers(PACKAGE)) == ([], [])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src_ext/gossipkv/wire/_frames.pyx", "from gossipkv.serving._serving cimport Pump\n"),
        ("src_ext/gossipkv/wire/_frames.pxd", "cimport gossipkv.storage._sorted_file\n"),
        ("src_ext/gossipkv/wire/_frames.pyx", "from gossipkv.node cimport (\n    _serving,\n)\n"),
        ("src_ext/gossipkv/wire/_frames.pyx", "cdef f():\n    from gossipkv.keyspace.ring import Ring\n"),
        ("src_ext/gossipkv/wire/_frames.pyx", "import time\n"),
        ("gossipkv/wire/_frames.pyi", "from gossipkv.dataset.local.version import Version\n"),
    ],
)
def test_an_import_upwards_is_seen(tmp_path: Path, name: str, text: str) -> None:
    (wrong,) = upwards(plant(tmp_path, {name: text}))
    assert wrong.startswith(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gossipkv/node/wiring.py", "from gossipkv.storage import _sorted_file\n"),
        ("gossipkv/node/wiring.py", "from gossipkv.storage._sorted_file import SortedFile\n"),
        ("gossipkv/node/wiring.py", "from gossipkv.storage.builder import _merge\n"),
        ("src_ext/gossipkv/serving/_serving.pyx", "from gossipkv.storage._sorted_file import SortedFile\n"),
    ],
)
def test_a_private_import_is_seen(tmp_path: Path, name: str, text: str) -> None:
    """Imports within the package, and `cimport`, are not reported."""
    home = {"gossipkv/storage/__init__.py": "from gossipkv.storage import _sorted_file\n"}
    above = {"src_ext/gossipkv/serving/_loop.pyx": "from gossipkv.storage._sorted_file cimport Slice\n"}
    (wrong,) = strangers(plant(tmp_path, {name: text, **home, **above}))
    assert wrong.startswith(name)


def test_import_linter_sees_what_is_planted(tmp_path: Path) -> None:
    """An upward import, a cycle, Trio outside a shell and a core that reads the clock each break their contract."""
    ignored = shutil.ignore_patterns("*.so", "*.pyi", "__pycache__")
    shutil.copytree(ROOT / "gossipkv", tmp_path / "gossipkv", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    plants = {
        "wire/frames.py": "def late():\n    import gossipkv.cli\n",
        "keyspace/partitioner.py": "if TYPE_CHECKING:\n    from gossipkv.keyspace.time_key import TimeKey\n",
        "keyspace/time_key.py": "import gossipkv.keyspace.partitioner\n",
        "placement/ring.py": "import trio, time\n",
        "client/route.py": "from gossipkv.settings.setting import Setting\n",
    }
    for name, text in plants.items():
        with (tmp_path / "gossipkv" / name).open("a", encoding="utf-8") as file:
            file.write(text)
    lint = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", lint], cwd=tmp_path, capture_output=True, text=True, check=False)
    broken = {
        contract["name"] for contract in CONTRACTS if f"{contract['name']} BROKEN" in " ".join(done.stdout.split())
    }
    assert done.returncode == 1, done.stdout
    assert broken == {
        "A part imports only what stands on lower floors",
        "No modules know each other in a circle",
        "A client runs anywhere, and knows nothing of what a node is made of",
        "Only shells know Trio and asyncio",
        "Cores import nothing that reaches the world",
    }
