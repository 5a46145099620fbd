"""Immutable databases: what lies at a source root, how a version of it is built, kept and switched to.

Read in this order:

    lifecycle/      the two lives of a version as tables, and what to do next as a pure function
    source/         databases, versions and files, as they lie at the source
    formats/        what their files may be
    local/          what is built, on the node's disk
    build/          from the one to the other, in a process of its own
    shared_resources.py   what the databases of a node share, and how many builds there were
    scrub/          what is served is checked again and again, in the cache and on the disk
    cluster/        what other nodes hold, and what this one may do
    memory/         which of the mapped files are resident
    held.py         a version that a node holds and answers, as its other parts see it
    rewriting.py    documents that nobody waits for
    database.py     one database: it looks, builds, switches and retires
    library.py      all of them; coalesced.py: looks that are asked for together
    report.py       what people and scripts are told
    offline/        versions made where the data is, without a node

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
