"""Entries of the gossip tree about tables: the servers of the catalogue, and the backups and restores under way.

`tables/<register of the catalogue>` is published by each server of the catalogue:

    [[uuid, store id], …]      the servers; empty: there is no catalogue, and this node may found it

A node that does not know the catalogue reads it from these servers. Later news come from other nodes' maps
(`register/follow.py`).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, final

import msgpack

from gossipkv.errors import GossipKVError, ProtocolError, TooLarge
from gossipkv.gossip.member import REACHABLE
from gossipkv.register.configuration import Acceptors, members_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.metadata.known import KnownMap
    from gossipkv.table.ports import ClusterView

TABLES: Final = "tables"  # The path in the tree.
BACKUPS: Final = "backups"  # `backups/<backup>`: its node writes that backup.
RESTORES: Final = "restores"  # `restores/<table>`: its node restores a backup into that hidden table.


@final
class HintBoard:
    """Publishes the entries of this node, and reads those of other nodes."""

    def __init__(self, tree: ClusterView, own: str) -> None:
        """`own`: this node's name."""
        self._tree = tree
        self._own = own
        self._published: tuple[bytes, bytes] | None = None  # The register, and the value of its entry.

    def publish(self, register: bytes, known_map: KnownMap | None, me: AcceptorId | None, *, founds: bool) -> None:
        """Publish the servers of the catalogue if this node is one, or that this node may found it."""
        wanted = None
        if known_map is None and founds:
            wanted = register, b""
        elif known_map is not None and me in known_map.acceptors.new:
            wanted = register, msgpack.packb(known_map.acceptors.new)
        if wanted == self._published:
            return
        if self._published is not None and (wanted is None or wanted[0] != self._published[0]):
            self._tree.withdraw(f"{TABLES}/{self._published[0].hex()}")
        self._published = wanted
        if wanted is not None:
            with contextlib.suppress(TooLarge):  # Other nodes ask the live members.
                self._tree.publish(f"{TABLES}/{wanted[0].hex()}", wanted[1])

    def heard(self, register: bytes) -> Mapping[str, bytes]:
        """Return the entries of other nodes about a catalogue, by the node's name."""
        path = register.hex()
        return {
            entry.owner: entry.value
            for entry in self._tree.below(TABLES)
            if entry.name == path and entry.owner != self._own
        }

    def servers(self, register: bytes) -> Mapping[str, Acceptors]:
        """Return the servers of a catalogue, by the name of the server that tells them.

        Only a server publishes them: an entry of another node may be false, and would hinder the founding.
        """
        found = {}
        uuids = {member.name: member.uuid for member in self._tree.members_known()}
        for owner, value in self.heard(register).items():
            with contextlib.suppress(GossipKVError):
                servers = _servers_of(value)
                if any(server.node == uuids.get(owner) for server in servers.new):
                    found[owner] = servers
        return found

    def begin_restore(self, table: bytes) -> None:
        """Tell all nodes that this node restores a backup into a hidden table. Raises TooLarge."""
        self._tree.publish(f"{RESTORES}/{table.hex()}")

    def end_restore(self, table: bytes) -> None:
        """Withdraw what `begin_restore` told."""
        self._tree.withdraw(f"{RESTORES}/{table.hex()}")

    def begin_backup(self, name: str) -> None:
        """Tell all nodes that this node writes a backup. Raises TooLarge."""
        self._tree.publish(f"{BACKUPS}/{name}")

    def end_backup(self, name: str) -> None:
        """Withdraw what `begin_backup` told."""
        self._tree.withdraw(f"{BACKUPS}/{name}")

    def restored(self) -> set[bytes]:
        """Return the ids of the tables into which nodes that may be alive restore a backup."""
        found: set[bytes] = set()
        for entry in self._tree.below(RESTORES):
            with contextlib.suppress(ValueError):
                if entry.state in REACHABLE:
                    found.add(bytes.fromhex(entry.name))
        return found


def _servers_of(value: bytes) -> Acceptors:
    """Read an entry. Raises ProtocolError, BadRequest: it has no servers."""
    try:
        return Acceptors.of(members_of(msgpack.unpackb(value)))
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError("the servers of a catalogue must be MessagePack") from error
