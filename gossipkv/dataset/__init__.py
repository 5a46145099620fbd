"""Immutable databases: what lies at a source root, how a version of it is built, kept and switched to.

What jobs outside a node call to write such versions is here by name, and is loaded when it is asked for: it needs no
Trio, and the process that builds for a node does not need it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossipkv.dataset.offline.finish import VersionReport, finish_version
    from gossipkv.dataset.offline.writer import PartitionReport, partition_of, write_partition

__all__ = ["PartitionReport", "VersionReport", "finish_version", "partition_of", "write_partition"]

_HOMES = {
    "PartitionReport": "offline.writer",
    "VersionReport": "offline.finish",
    "finish_version": "offline.finish",
    "partition_of": "offline.writer",
    "write_partition": "offline.writer",
}


def __getattr__(name: str) -> object:
    """One of the names above, from the module that it is defined in."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
