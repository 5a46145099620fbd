"""The quorum reads of all registers at intervals, and the growth of the catalogue with its cluster.

A member that was late for a new table is added to the nodes of tables once it answers; news of members cause a step.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError, NotReady
from gossipkv.table.controllers.pause import Pause
from gossipkv.table.session.token import EndedTables

if TYPE_CHECKING:
    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.table.participant.node_directory import NodeDirectory
    from gossipkv.table.service import TableService

STEP_S: Final = 1.0
POLL_S: Final = 60.0  # Interval between reads of a register: a safety net, since decisions come by polls.
MAX_LOOKS: Final = 16  # Registers per step: a thousand tables are all read within about a minute.


@final
class RegisterPoll:
    """Reads each register at intervals, whatever other nodes tell."""

    def __init__(self, service: TableService, directory: NodeDirectory) -> None:
        self._service = service
        self._directory = directory
        self._late: set[bytes] = set()  # Members that were late for a table, and are no nodes of tables yet.
        self._is_running = False
        self.pause = Pause(STEP_S)
        self._poll_at = -math.inf  # The time of the next read of the catalogue.
        # By table name: the time of the catalogue's read with or after which its register was last read.
        self._looked_at: dict[str, float] = {}
        self._ended_tables = EndedTables()

    def begin(self, nursery: trio.Nursery) -> None:
        """Poll from now on, also when the store is reopened; do nothing if that was begun."""
        if not self._is_running:
            self._is_running = True
            nursery.start_soon(self.run)

    def soon(self) -> None:
        """Read the catalogue in the next step."""
        self._poll_at = trio.current_time()
        self.pause.end()

    def has_ended(self, table: bytes) -> bool:
        """Return True if a table is known to be dropped."""
        catalogue = self._service.catalogue
        if catalogue is None or any(named.id == table for named in catalogue.tables().values()):
            return False
        return self._ended_tables.has(table)

    def await_late(self) -> None:
        """Add each member that was late for a table to the nodes of tables, once it answers."""
        self._late.update(self._directory.present())

    async def run(self) -> None:
        """Grow the catalogue, and read all registers at intervals, so that no other task waits for these reads."""
        while True:
            assert self._service.catalogue is not None  # The attribute changes when the store is reopened.
            began, is_quiet = trio.current_time(), False
            if self._service.knows_catalogue:
                with contextlib.suppress(GossipKVError):  # The next step tries again.
                    is_quiet = not await self._service.catalogue.grow()
                if self._late:
                    with contextlib.suppress(NotReady):
                        await self._add_late()
                if trio.current_time() >= self._poll_at:
                    self._poll_at = trio.current_time() + POLL_S
                    self._ended_tables.begin_read()
                    with contextlib.suppress(GossipKVError):
                        await self._service.catalogue.tend()
                        self._ended_tables.end_read()
                with contextlib.suppress(GossipKVError):
                    await self._poll_tables(self._service.catalogue)
            await self.pause.rest(began, is_quiet=is_quiet and len(self._looked_at) <= MAX_LOOKS)

    async def _add_late(self) -> None:
        """Add late members that are alive. Raises NotReady."""
        metadata, catalogue = self._service.taking_part()
        self._late &= self._directory.present().keys() - catalogue.nodes.named().keys()
        for node in sorted(self._late.intersection(self._directory.alive())):
            with contextlib.suppress(GossipKVError):  # A later step tries again.
                comer = await catalogue.nodes.invited(node)
                await catalogue.put_in([comer], metadata.known[catalogue.register].config)

    async def _poll_tables(self, catalogue: Catalogue) -> None:
        """Read the registers of the tables that were read longest ago."""
        now, last, tables = trio.current_time(), self._poll_at - POLL_S, catalogue.tables()
        self._looked_at = {name: self._looked_at.get(name, last) for name in tables}
        due = sorted((at, name) for name, at in self._looked_at.items() if at + POLL_S <= now)
        async with trio.open_nursery() as nursery:
            for _, name in due[:MAX_LOOKS]:
                self._looked_at[name] = last  # Registers that are read together wake this node and others only once.
                nursery.start_soon(self._poll_table, catalogue, name)

    @staticmethod
    async def _poll_table(catalogue: Catalogue, name: str) -> None:
        with contextlib.suppress(GossipKVError):
            await catalogue.tend_table(name)
