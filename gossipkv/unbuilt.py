"""Errors for missing or broken extensions: the import fails, and tells how to build them.

There is no slow fallback in Python. A node that is silently fifty times slower is worse than a node that does not
start. The plain-Python twins under `tests/oracle/` serve for comparison only.

Extensions are the modules named `gossipkv.<package>._name`, each with its stub `_name.pyi` in the package. A finder in
front of Python's own handles these names only.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

HOW_TO_BUILD = (
    "In a source tree, run `make build` (or `pip install -e .`); elsewhere, run "
    "`pip install --force-reinstall gossipkv`. Both need a C compiler."
)
NEEDS_LINUX = "A node needs Linux on x86-64 or aarch64; on this machine only the client (gossipkv.blocking) works."
CLIENT_PACKAGES = ("gossipkv.client.", "gossipkv.keyspace.", "gossipkv.wire.")


class _Loader(ExtensionFileLoader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        try:
            return super().create_module(spec)
        except ImportError as error:
            message = f"{spec.name} is built but cannot be loaded: {error}. {HOW_TO_BUILD}"
            raise ImportError(message, name=spec.name, path=spec.origin) from error


class _Finder:  # The base `importlib.abc.MetaPathFinder` would load thirty modules first.
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if not package.startswith("gossipkv.") or not name.startswith("_") or name.startswith("__") or not path:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, ExtensionFileLoader) and spec.origin is not None:
            return spec_from_file_location(fullname, spec.origin, loader=_Loader(fullname, spec.origin))
        if spec is None and any(Path(directory, f"{name}.pyi").exists() for directory in path):
            raise ImportError(_missing(fullname, path), name=fullname)
        return spec


def _missing(fullname: str, path: Sequence[str]) -> str:
    """Return the message for an import of a missing extension."""
    machine = import_module("platform").machine()
    runs_a_node = sys.platform.startswith("linux") and machine in {"x86_64", "aarch64"}
    if not runs_a_node and not fullname.startswith(CLIENT_PACKAGES):
        return f"{fullname} is not built on {sys.platform} ({machine}). {NEEDS_LINUX}"
    name = fullname.rpartition(".")[2]
    builds = sorted(str(other) for directory in path for other in Path(directory).glob(f"{name}.*.*"))
    here = f"{fullname} is not built for this Python ({sys.implementation.cache_tag})"
    built = f"{fullname.replace('.', '/')}.{sys.implementation.cache_tag}*"
    if installed := next((place for place in map(Path, sys.path) if any(place.glob(built))), None):
        return f"{here} in {path[0]}, but is in {installed}: run Python in another directory, or as `python -P`"
    found = f"; builds for other Pythons exist: {', '.join(builds)}" if builds else ""
    return f"{here}{found}. {HOW_TO_BUILD}"


def install() -> None:
    """Put the finder first, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
