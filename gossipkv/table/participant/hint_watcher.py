"""The hint watcher: publishes hints about the maps of this node, and reads newer maps that other nodes hint at."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError
from gossipkv.table.peers.hints import encode_named, is_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.register.metadata.server import Metadata
    from gossipkv.table.participant.node_directory import NodeDirectory
    from gossipkv.table.peers.hints import HintBoard, MapHint
    from gossipkv.table.service import TableService

    Hints = Mapping[bytes, Mapping[str, bytes]]  # By register and by the name of the node.

LOOK_S: Final = 1.0  # Shortest time from a read without news to the next one that requests ask for.
RETRY_S: Final = 3.0  # Delay until a register that could not be read is read again.
CATALOGUE: Final = ""  # The owner of hints from the catalogue; other hints have the name of a node.


@final
class HintWatcher:
    """Publishes hints, and reads the registers that newer hints name, each in a task of its own."""

    def __init__(
        self, board: HintBoard, service: TableService, directory: NodeDirectory, on_read: Callable[[], object]
    ) -> None:
        """`on_read` is called when a register was read."""
        self._board = board
        self._service = service
        self._directory = directory
        self._on_read = on_read
        self._nursery: trio.Nursery | None = None
        self._forget_at = math.inf  # The time at which all hints count as new again.
        self._reading: dict[bytes, int] = {}  # By register that is being read: the newest config id to find.
        self._asked_at: dict[bytes, float] = {}  # By register: the start of the last read for `look_at` without news.

    @property
    def retries(self) -> bool:
        """True if a register could not be read."""
        return self._forget_at < math.inf

    def begin(self, nursery: trio.Nursery | None) -> None:
        """Read registers in tasks of this nursery from now on; None: read no more."""
        self._nursery = nursery

    def publish(self, hints: Hints, founds: bytes | None) -> bool:
        """Publish hints, and that this node may found the catalogue `founds`; return True if a hint is new."""
        metadata = self._service.metadata
        if metadata is None:
            return self._board.publish({}, None, founds, hints)
        return self._board.publish(metadata.known, metadata.me, founds, hints, open_=self._reading)

    def follow(self, hints: Hints) -> None:
        """Start reads of the registers with hints that are new to this node. Raises NotReady."""
        metadata, catalogue = self._service.metadata, self._service.catalogue
        if metadata is None or catalogue is None:
            return
        registers = {self._service.register: hints.get(self._service.register, {})}
        for table in catalogue.tables().values():
            registers[table.id] = hints.get(table.id, {})
            if table.id not in metadata.known:  # The creator may have gone before any node has read the map.
                registers[table.id] = {**registers[table.id], CATALOGUE: encode_named(table)}
        for register, by_owner in registers.items():
            if register in self._reading:
                continue
            news = self._board.news(register, by_owner, metadata.known.get(register))
            if news and self._nursery is not None:
                self._reading[register] = 0
                self._nursery.start_soon(self._read_newer, metadata, register, news)
        if trio.current_time() >= self._forget_at:
            self._forget_at = math.inf
            self._board.forget()

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
            if found == before:
                break
            self._asked_at.pop(register, None)
            if found is None or found.config >= self._reading[register]:
                break
        del self._reading[register]
        self._on_read()

    async def _read_newer(self, metadata: Metadata, register: bytes, hints: Sequence[MapHint]) -> None:
        """Read a register with new hints; a task of its own, so that an unreadable register delays no other."""
        for hint in hints:
            if hint.is_news_to(metadata.known.get(register)):  # The first read answers most hints.
                try:
                    await metadata.quorum_read(register, hint.acceptors)
                except GossipKVError:  # For example, a page has not arrived yet.
                    self._forget_at = min(self._forget_at, trio.current_time() + RETRY_S)
        del self._reading[register]
        self._on_read()

    # -- other nodes, by their hints -----------------------------------------------------------------------------------

    def participants(self) -> list[bytes]:
        """Return the other live nodes that publish a hint about a map; those that would repeat one are missing."""
        owners = {name for hints in self._board.heard().values() for name, hint in hints.items() if is_hint(hint)}
        return [node for node in self._directory.alive() if self._directory.name_of(node) in owners]

    def founder(self) -> str | None:
        """Return the name of a live node that may found the catalogue; None: none is known."""
        names = self._directory.names()
        alive = {names[node] for node in self._directory.alive()}
        hints = self._board.heard().get(self._service.register, {})
        return next((owner for owner, hint in hints.items() if not hint and owner in alive), None)
