"""Changes that operators ask for: operations on the catalogue or on a table's map, decided from the newest state.

If another change comes first, the operation is decided again from the new state. A repeated request changes nothing.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio

from gossipkv.errors import BadRequest, Conflict, GossipKVError, NotReady, Unavailable, Unknown, UnknownDatabase
from gossipkv.register.configuration import Acceptors
from gossipkv.register.metadata.nodes import placed
from gossipkv.register.metadata.operations import OPERATION_ID_BYTES, Operation, OperationOutcome
from gossipkv.wire.rpc import Value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from random import Random

    from gossipkv.placement.spread import SpreadNode
    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.register.metadata.deadline import Deadline
    from gossipkv.register.metadata.known import MapView
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.register.metadata.tables import NamedNode
    from gossipkv.table.participant.participant import MetadataParticipant

T = TypeVar("T")
# Name, version and argument of an operation, or None if there is nothing to do; and the answer.
Change = tuple[tuple[str, int, object] | None, dict[str, Value]]

START_OR_FORCE: Final = (
    "too few acceptors answer: start their nodes, or if most are lost for good, see `gossipkv metadata force --help`"
)
LATELY_S: Final = 0.5  # Timeout of a read of the newest catalogue or map; then the known one is used.
MET_S: Final = 3.0  # Time until a new node knows the tables, and all nodes know which messages it reads.


@final
class TransactMethods:
    """The common part of all methods that change the catalogue and maps."""

    def __init__(self, participant: MetadataParticipant, random: Random) -> None:
        self._participant, self._directory = participant, participant.directory
        self._random = random

    async def informed(self, deadline: Deadline) -> tuple[Metadata, Catalogue]:
        """Return the metadata server and the catalogue, once known here.  Raises NotReady, Unavailable."""
        with deadline.step("looking for the catalogue"):
            metadata, catalogue = await soon(self._participant.informed)
            if catalogue.register not in metadata.known:
                raise NotReady("this node knows no catalogue of tables; creating the first table makes the catalogue")
        return metadata, catalogue

    async def describe(self, node: bytes) -> NamedNode:
        """Return a node's description of itself.  Raises Unavailable."""
        return await soon(partial(self._directory.describe, node))

    async def lately(self) -> tuple[Metadata, Catalogue]:
        """Return the metadata server and the catalogue, the newest one if it can be read.  Raises NotReady."""
        metadata, catalogue = await self._participant.informed()
        with trio.move_on_after(LATELY_S), contextlib.suppress(GossipKVError):
            await metadata.quorum_read(catalogue.register)
        return metadata, catalogue

    @staticmethod
    async def read(metadata: Metadata, catalogue: Catalogue, deadline: Deadline) -> int:
        """Read the catalogue by a quorum; return its config id.

        Some map of each table, maybe an old one, is known here afterwards; only the groups in a table's description
        can be out of date.
        """
        try:
            with deadline.step("a read of the catalogue"):
                known_map = await metadata.quorum_read(catalogue.register)
        except (NotReady, Unavailable) as error:
            raise Unavailable(f"{error.message}; {START_OR_FORCE}", error.details) from error
        with deadline.step("a read of the tables' maps"):
            for table in catalogue.tables().values():
                if table.id not in metadata.known:  # A new node has no maps yet.
                    with contextlib.suppress(UnknownDatabase):  # The table is dropped, but still named.
                        await metadata.quorum_read(table.id, Acceptors.of(table.acceptors))
        return known_map.config

    async def is_done(
        self, catalogue: Catalogue, register: bytes, asked: tuple[int, str, int, object], deadline: Deadline
    ) -> bool:
        """Apply an operation; return False if another change came first.

        Raises:
            Conflict: the operation is refused.
            Unknown: the operation may have been applied; a repeated request is applied once.
            GossipKVError: as `Catalogue.transact`.
        """
        name = asked[1]
        operation = Operation(self._random.randbytes(OPERATION_ID_BYTES), *asked)
        (answer,) = await catalogue.transact(register, [operation], deadline.left_s())
        match answer.outcome:
            case OperationOutcome.REFUSED:
                raise Conflict(f"{name}: {answer.message or answer.code}")
            case OperationOutcome.UNKNOWN:
                raise Unknown(f"{name}: the change may or may not be made; repeat it, a change is made only once")
        return answer.outcome is OperationOutcome.DONE

    def named(self, named: Mapping[bytes, NamedNode], name: str, *, but: bytes = b"") -> bytes:
        """Return the uuid of a node in the catalogue by its present or former name, or by the uuid's digits; not `but`.

        Raises:
            BadRequest: no node or several nodes match.
        """
        names = self._directory.names()
        found = [uuid for uuid in named if name in {names.get(uuid), uuid.hex()} and uuid != but]
        if not found:  # Former members have only the name in the catalogue.
            strangers = [uuid for uuid in named if uuid not in names and uuid != but]
            found = [uuid for uuid in strangers if named[uuid].name == name]
        if len(found) > 1:
            uuids = " or ".join(uuid.hex() for uuid in found)
            raise BadRequest(f"several nodes had the name {name}: give a uuid, {uuids}")
        if not found:
            listed = sorted(names.get(uuid) or node.name for uuid, node in named.items() if uuid != but)
            other = "another" if but else "a"
            raise BadRequest(f"{name} is not {other} node of tables; the nodes are: {', '.join(listed) or 'none'}")
        return found[0]

    async def change_map(
        self, table: str, decide: Callable[[MapView, list[SpreadNode]], Awaitable[Change]], deadline: Deadline
    ) -> dict[str, Value]:
        """Apply the operation that `decide` chooses from a table's newest map and the nodes of tables.

        `decide` may be slow: if the map has changed meanwhile, it is called again. Finally the new map is read, if
        possible.

        Raises:
            GossipKVError: as `decide`, `informed`, `is_done`.
        """
        metadata, catalogue = await self.informed(deadline)
        while True:
            await self.read(metadata, catalogue, deadline)  # To know the present nodes.
            register = catalogue.table(table).id
            with deadline.step("a read of the table's map"):
                known_map = await metadata.quorum_read(register)
            change, answer = await decide(metadata.view(register), placed(catalogue.nodes.named()))
            if change is None or await self.is_done(catalogue, register, (known_map.config, *change), deadline):
                break
        with deadline.rest(), contextlib.suppress(GossipKVError):  # The change is done, even if this read fails.
            await metadata.quorum_read(register)
        return answer


async def soon(ask: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `ask`, retried for `MET_S` while a new node is not known everywhere."""
    with trio.move_on_after(MET_S):
        while True:
            try:
                return await ask()
            except (NotReady, Unavailable):
                await trio.sleep(MET_S / 30)
    return await ask()
