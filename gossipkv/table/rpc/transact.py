"""How a change that people ask for is done: an operation on the catalogue or on a table's map, made by what is newest.

Where another change comes first it is made anew, by that.  Said again it finds itself done.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio

from gossipkv.errors import BadRequest, Conflict, GossipKVError, NotReady, Unavailable, Unknown, UnknownDatabase
from gossipkv.register.configuration import Acceptors
from gossipkv.register.metadata.nodes import placed
from gossipkv.register.metadata.operations import Operation
from gossipkv.register.metadata.pages import OPERATION_ID_BYTES, OperationOutcome
from gossipkv.wire.rpc import Value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from random import Random

    from gossipkv.placement.spread import SpreadNode
    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.register.metadata.deadline import Deadline
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.register.metadata.tables import NamedNode
    from gossipkv.register.metadata.tree import MapTree
    from gossipkv.table.participant.participant import MetadataParticipant

T = TypeVar("T")
# The name of an operation, its version and its argument, or None: nothing is left to do; and what is told then.
Change = tuple[tuple[str, int, object] | None, dict[str, Value]]

LATELY_S: Final = 0.5  # In which the newest catalogue, or map, is read; else that is told which is known here.
MET_S: Final = 3.0  # Until who has just come has heard of tables, and all have heard which messages it reads.


@final
class TransactMethods:
    """What all methods share by which people change the catalogue and maps."""

    def __init__(self, deciding: MetadataParticipant, random: Random) -> None:
        self._deciding = deciding
        self._random = random

    async def informed(self, deadline: Deadline) -> tuple[Metadata, Catalogue]:
        """What this node decides with.  Raises NotReady, Unavailable."""
        with deadline.step("looking for the catalogue"):
            metadata, catalogue = await soon(self._deciding.informed)
            if catalogue.register not in metadata.known:
                raise NotReady(
                    "no catalogue of tables is known here: whom the first table is laid on is put in by that"
                )
        return metadata, catalogue

    async def describe(self, node: bytes) -> NamedNode:
        """What a node says of itself.  Raises Unavailable."""
        return await soon(partial(self._deciding.describe, node))

    async def lately(self) -> tuple[Metadata, Catalogue]:
        """What this node decides with, and the newest catalogue if it can be read.  Raises NotReady."""
        metadata, catalogue = await self._deciding.informed()
        with trio.move_on_after(LATELY_S), contextlib.suppress(GossipKVError):
            await metadata.quorum_read(catalogue.register)
        return metadata, catalogue

    @staticmethod
    async def read(metadata: Metadata, catalogue: Catalogue, deadline: Deadline) -> int:
        """Read the catalogue by a quorum; its config id.

        Some map of each table is known then: what a table is, but for its groups, never changes.
        """
        with deadline.step("a read of the catalogue"):
            known = await metadata.quorum_read(catalogue.register)
        with deadline.step("a read of the tables' maps"):
            for table in catalogue.tables().values():
                if table.id not in metadata.known:  # Who has just come has none yet.
                    with contextlib.suppress(UnknownDatabase):  # It is dropped, and named yet.
                        await metadata.quorum_read(table.id, Acceptors.of(table.acceptors))
        return known.config

    async def is_done(
        self, catalogue: Catalogue, register: bytes, asked: tuple[int, str, int, object], deadline: Deadline
    ) -> bool:
        """Have an operation done; False: another change came first.

        Raises:
            Conflict: it is refused.
            Unknown: it may have been done; said again it is done once.
            GossipKVError: as `Catalogue.transact`.
        """
        name = asked[1]
        operation = Operation(self._random.randbytes(OPERATION_ID_BYTES), *asked)
        (answer,) = await catalogue.transact(register, [operation], deadline.left_s())
        match answer.outcome:
            case OperationOutcome.REFUSED:
                raise Conflict(f"{name}: {answer.message or answer.code}")
            case OperationOutcome.UNKNOWN:
                raise Unknown(f"{name}: whether it was done is not known; it may be said again, and is done once")
        return answer.outcome is OperationOutcome.DONE

    def named(self, named: Mapping[bytes, NamedNode], name: str, *, but: bytes = b"") -> bytes:
        """A node that the catalogue names, by its name now or then, or by the digits of its uuid; not `but`.

        Raises:
            BadRequest: there is none, or several.
        """
        names = self._deciding.names()
        found = [uuid for uuid in named if name in {names.get(uuid), uuid.hex()} and uuid != but]
        if not found:  # Who is no member any more.
            strangers = [uuid for uuid in named if uuid not in names and uuid != but]
            found = [uuid for uuid in strangers if named[uuid].name == name]
        if len(found) > 1:
            raise BadRequest(f"{name} was the name of several nodes: say {' or '.join(uuid.hex() for uuid in found)}")
        if not found:
            others = sorted(names.get(uuid) or node.name for uuid, node in named.items() if uuid != but)
            what = "no other node of tables" if but else "no node of tables"
            raise BadRequest(f"{name} is {what}; these are: {', '.join(others) or 'none'}")
        return found[0]

    async def change_map(
        self, table: str, argued: Callable[[MapTree, list[SpreadNode]], Awaitable[Change]], deadline: Deadline
    ) -> dict[str, Value]:
        """Have an operation done on a table's map: `argued` makes it, by the newest map and the nodes of tables.

        It may take its time: where the map is another one by then, it is made anew.  The map is known here afterwards,
        if it can be.

        Raises:
            GossipKVError: as `argued`, `informed`, `is_done`.
        """
        metadata, catalogue = await self.informed(deadline)
        while True:
            await self.read(metadata, catalogue, deadline)  # For the nodes that it names now.
            register = catalogue.table(table).id
            with deadline.step("a read of the table's map"):
                known = await metadata.quorum_read(register)
            change, told = await argued(metadata.tree(register), placed(catalogue.nodes.named()))
            if change is None or await self.is_done(catalogue, register, (known.config, *change), deadline):
                break
        with deadline.rest(), contextlib.suppress(GossipKVError):  # It is so, whatever is known of it here.
            await metadata.quorum_read(register)
        return told


async def soon(ask: Callable[[], Awaitable[T]]) -> T:
    """What is asked, where need be after the moment that a node takes to meet the others."""
    with trio.move_on_after(MET_S):
        while True:
            try:
                return await ask()
            except (NotReady, Unavailable):
                await trio.sleep(MET_S / 30)
    return await ask()
