"""Immutable databases: their versions at a source root, and how versions are built, kept and switched to.

    lifecycle/           the states of a version as tables, and the next step as a pure function
    source/              databases, versions and files at the source
    snapshots/           Delta and Iceberg tables as sources
    formats/             the formats of the files
    local/               built versions on the node's disk
    build/               builds of versions, in a process of their own
    memory/              which of the served files are resident
    scrub/               repeated checks of served files, in the cache and on the disk
    cluster/             the versions of other nodes, and the steps that they permit this node
    held.py              a version that a node holds, as its other parts see it
    coalesced.py         one run of an action serves all callers who asked before it began
    rewriting.py         a document that is rewritten after its content changes
    shared_resources.py  resources that the databases of a node share
    database.py          one database: it looks, builds, switches and retires
    library.py           all databases of a node
    report.py            the answers to people and scripts
    offline/             versions made beside the data, without a node

Jobs outside a node import the names below, which load on first use: they need no Trio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossipkv.dataset.offline.finish import VersionReport, finish_version
    from gossipkv.dataset.offline.frames import write_frame
    from gossipkv.dataset.offline.writer import PartitionReport, partition_of, write_partition

__all__ = ["PartitionReport", "VersionReport", "finish_version", "partition_of", "write_frame", "write_partition"]

_HOMES = {
    "PartitionReport": "offline.writer",
    "VersionReport": "offline.finish",
    "finish_version": "offline.finish",
    "partition_of": "offline.writer",
    "write_frame": "offline.frames",
    "write_partition": "offline.writer",
}


def __getattr__(name: str) -> object:
    """Return one of the names above, from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
