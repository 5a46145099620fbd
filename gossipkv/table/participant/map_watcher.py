"""The map watcher: reads the catalogue that a new node does not know, and maps of which a newer one was seen."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.register.metadata.server import Metadata
    from gossipkv.table.participant.node_directory import NodeDirectory
    from gossipkv.table.peers.hints import HintBoard
    from gossipkv.table.service import TableService

LOOK_S: Final = 1.0  # Shortest time from a read without news to the next one that requests ask for.


@final
class MapWatcher:
    """Reads registers of which this node knows too little, each in a task of its own."""

    def __init__(
        self, board: HintBoard, service: TableService, directory: NodeDirectory, on_read: Callable[[], object]
    ) -> None:
        """`on_read` is called when a register was read."""
        self._board = board
        self._service = service
        self._directory = directory
        self._on_read = on_read
        self._nursery: trio.Nursery | None = None
        self._reading: dict[bytes, int] = {}  # By register that is being read: the newest config id to find.
        self._asked_at: dict[bytes, float] = {}  # By register: the start of the last read for `look_at` without news.

    def begin(self, nursery: trio.Nursery | None) -> None:
        """Read registers in tasks of this nursery from now on; None: read no more."""
        self._nursery = nursery

    def look_for_catalogue(self) -> None:
        """Read the catalogue from the servers that other nodes tell, if this node does not know it."""
        metadata, register = self._service.metadata, self._service.register
        if metadata is None or self._nursery is None or register in metadata.known or register in self._reading:
            return
        if self._board.servers(register):
            self._reading[register] = 0
            self._nursery.start_soon(self._read_first, metadata, register)

    async def _read_first(self, metadata: Metadata, register: bytes) -> None:
        for servers in dict.fromkeys(self._board.servers(register).values()):
            if register not in metadata.known:
                with contextlib.suppress(GossipKVError):  # The next step tries again.
                    await metadata.quorum_read(register, servers)
        del self._reading[register]
        self._on_read()

    def look_at(self, register: bytes, node: bytes = b"", config: int = 0) -> None:
        """Start a read of a register of which a newer map was seen: one at a time, and one a second without news.

        Writes wait while the hosts of their partition follow different maps, so a map with news is followed at once.

        `node`: a node that knows the newer map. `config`: the map's config id; 0: unknown.
        """
        metadata, now = self._service.metadata, trio.current_time()
        known_map = None if metadata is None else metadata.known.get(register)
        if config and known_map is not None and known_map.config >= config:
            return  # The reconciler is about to follow it.
        if metadata is None or self._nursery is None:
            return
        if register in self._reading:
            self._reading[register] = max(config, self._reading[register])
        elif now >= self._asked_at.get(register, -math.inf) + LOOK_S:
            self._asked_at[register], self._reading[register] = now, config
            self._nursery.start_soon(self._read, metadata, register, node)

    async def _read(self, metadata: Metadata, register: bytes, node: bytes) -> None:
        while True:
            before = metadata.known.get(register)
            with contextlib.suppress(GossipKVError):  # The requests that need the map ask again.
                await metadata.look(register, node)
            found = metadata.known.get(register)
            if found is before:
                break
            self._asked_at.pop(register, None)
            if found is None or found.config >= self._reading[register]:
                break
        del self._reading[register]
        self._on_read()

    # -- other nodes, by their entries in the tree ---------------------------------------------------------------------

    def participants(self) -> list[bytes]:
        """Return the other live nodes that serve the catalogue."""
        owners = self._board.servers(self._service.register).keys()
        return [node for node in self._directory.alive() if self._directory.name_of(node) in owners]

    def founder(self) -> str | None:
        """Return the name of a live node that may found the catalogue; None: none is known."""
        names = self._directory.names()
        alive = {names[node] for node in self._directory.alive()}
        hints = self._board.heard(self._service.register)
        return next((owner for owner, hint in hints.items() if not hint and owner in alive), None)
