"""The modules that are imported at first use, by methods and for tables: a node loads them before it is ready.

Without free descriptors nothing can be imported. In the serving thread, these imports would stop it for half a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

LATER: Final = (
    "concurrent.futures.thread",
    "encodings.idna",
    "gossipkv.backup.create",
    "gossipkv.backup.restore",
    "gossipkv.register.metadata.server",
    "gossipkv.replication.deadlines",
    "gossipkv.replication.ports",
    "gossipkv.storage.engine.shell",
    "gossipkv.table.calm",
    "gossipkv.table.controllers.local_tables",
    "gossipkv.table.controllers.supervisor",
    "gossipkv.table.records.endpoints",
    "gossipkv.table.rpc.admin",
    "gossipkv.table.rpc.node_admin",
    "gossipkv.table.rpc.peer_rpc",
    "gossipkv.table.rpc.quarantine",
    "gossipkv.table.rpc.range_admin",
    "gossipkv.table.rpc.status",
)


def load_modules() -> None:
    """Import all of them."""
    for name in LATER:
        import_module(name)
