"""A missing or broken compiled part stops the import, and the message has the remedy."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING

import pytest

import gossipkv
from gossipkv import unbuilt

if TYPE_CHECKING:
    from pathlib import Path

# A package of two files: the finder covers everything below `gossipkv`, wherever that is.
TRY = """
import sys
sys.path.insert(0, sys.argv[2])
sys.platform = sys.argv[3]
import gossipkv
gossipkv.__path__.insert(0, sys.argv[1])
from gossipkv.planted import _part
"""


def complaint(directory: Path, platform: str = "linux", installed: str = "") -> str:
    """Return the error of importing `gossipkv.planted._part` in a process of its own."""
    source = str(gossipkv.__path__[0]).removesuffix("gossipkv")
    command = [sys.executable, "-c", TRY, str(directory), source, platform]
    variables = {**os.environ, "PYTHONPATH": installed}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Return a package whose extension has a stub and is not built."""
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_part.pyi").touch()
    return package


def test_a_missing_extension_says_how_to_build(planted: Path) -> None:
    said = complaint(planted.parent)
    assert said.startswith("ImportError: gossipkv.planted._part is not built for this Python")
    assert "make build" in said


def test_an_extension_for_another_python_is_named(planted: Path) -> None:
    """The message mentions an extension for another Python, which explains the failure."""
    other = planted / "_part.cpython-305-other.so"
    other.touch()
    assert f"builds for other Pythons exist: {other}" in complaint(planted.parent)


def test_sources_that_hide_an_installed_package_are_named(planted: Path, tmp_path: Path) -> None:
    """Python begins with the directory in which it runs, such as a clone beside whose sources nothing is built."""
    site = tmp_path / "site"
    (site / "gossipkv" / "planted").mkdir(parents=True)
    (site / "gossipkv" / "planted" / f"_part{EXTENSION_SUFFIXES[0]}").touch()
    said = complaint(planted.parent, installed=str(site))
    assert f"in {planted}, but is in {site}: run Python in another directory, or as `python -P`" in said


def test_a_broken_extension_says_how_to_build(planted: Path) -> None:
    """A file that is no library is named, with the loader's reason and the remedy."""
    (planted / f"_part{EXTENSION_SUFFIXES[0]}").write_bytes(b"nothing")
    said = complaint(planted.parent)
    assert "is built but cannot be loaded" in said
    assert "make build" in said


def test_elsewhere_than_on_linux_a_node_says_so(planted: Path) -> None:
    """On another system the message says that a node needs Linux."""
    said = complaint(planted.parent, "darwin")
    assert "is not built on darwin (" in said
    assert "A node needs Linux" in said


def test_a_module_that_never_was_is_no_extension(planted: Path) -> None:
    """Without a stub it is an ordinary missing module."""
    (planted / "_part.pyi").unlink()
    assert complaint(planted.parent).startswith("ImportError: cannot import name '_part'")


def test_the_finder_stands_once() -> None:
    """A second installation changes nothing."""
    before = list(sys.meta_path)
    unbuilt.install()
    assert sys.meta_path == before
