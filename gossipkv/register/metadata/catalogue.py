"""The catalogue of tables: its founding and growth, and the creation and dropping of tables.

The catalogue is a map like a table's, in a register whose id all nodes of a cluster know. The first `create_table`
founds it with one acceptor, on the node that drew the cluster's id and on no other: so two sides of a network partition
cannot each found one. As nodes join, the catalogue and every table that has fewer grow to 3 and 5 acceptors. An
acceptor on a node that is removed from tables is replaced; without another node, the register shrinks to 3 or 1. Any
other dead acceptor is replaced by command only.

All servers have accepted a table's first map before the catalogue names the table; a failure in between leaves a map
without a name, which is deleted in time (`tend`). A table is dropped first in its own register, for good, and then in
the catalogue; a node that finds only the first finishes the drop.
"""

from __future__ import annotations

import contextlib
from functools import partial
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import (
    BadRequest,
    Conflict,
    GossipKVError,
    LimitExceeded,
    NotReady,
    Overloaded,
    ProtocolError,
    RequestError,
    TimedOut,
    Unavailable,
    Unknown,
    UnknownDatabase,
    no_table,
)
from gossipkv.register.ballot import BELOW, ZERO, Ballot
from gossipkv.register.configuration import Acceptors, Forced, Value
from gossipkv.register.edits import MapValue
from gossipkv.register.follow import Follower
from gossipkv.register.metadata.deadline import Deadline
from gossipkv.register.metadata.first_maps import FirstMaps
from gossipkv.register.metadata.known import META, config_id, stamped
from gossipkv.register.metadata.nodes import Nodes, first_map, placed
from gossipkv.register.metadata.operations import (
    EXPIRED,
    ID_USED,
    MAX_OPERATIONS,
    OPERATION_ID_BYTES,
    UNSUPPORTED,
    Operation,
    OperationAnswer,
    OperationOutcome,
    answers_of,
    judgement,
)
from gossipkv.register.metadata.packing import pack
from gossipkv.register.metadata.partitions import HASH, MURMUR3, TABLE_ID_BYTES, TableMeta, shard_key
from gossipkv.register.metadata.tables import END_OF_NODES, EXISTS, SECRET_BYTES, NamedTable, decode_named
from gossipkv.register.metadata.transactions import ended_by
from gossipkv.register.proposal import ChangeEnd, Reconfigure
from gossipkv.register.state import first_value
from gossipkv.settings.databases import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from random import Random

    from gossipkv.keyspace.time_key import TimeKey
    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.metadata.known import KnownMap
    from gossipkv.register.metadata.nodes import NodeList, PlaceableNode
    from gossipkv.register.metadata.server import Metadata, OtherServers
    from gossipkv.wire.rpc import Value as WireValue

FIRST_CONFIG: Final = config_id(0, 1)  # The config id of the first map of a register.
WHOLE_S: Final = 10.0  # Default time for the creation of a table.
INVITING_PART: Final = 0.7  # Part of that time in which nodes may answer an invitation.
ASK_S: Final = 5.0
FEW_PARTITIONS: Final = 1024  # Up to this many partitions are placed in the loop, more in a thread.
GROWN_S: Final = 10.0  # Time until all registers are checked again without a change of members or tables.
MAX_GROWN: Final = 16  # Registers that grow before other work has its turn.
MARK_BYTES: Final = 8  # The last bytes of a table's id; the rest of its 16 bytes is random.
SIZES: Final = (1, 3, 5)  # Numbers of acceptors of a growing register.
REPLICATION: Final = 3  # With two replicas the majority is both, so one failure would stop all writes.
_STEPS: Final = {size: larger - size for size, larger in pairwise(SIZES)}


class _IdUsed(Conflict): ...


class WantedTable(NamedTuple):
    """A requested table."""

    name: str  # A hidden table's name begins with `HIDDEN`.
    kind: str
    replication: int  # 0: `REPLICATION`, or fewer with fewer members. A hidden table may have fewer as well.
    keys: Sequence[bytes]  # The first key of each partition, in order.
    partitioner: str = MURMUR3
    time_key: TimeKey | None = None
    smears: bool = False
    ttl_ms: int = 0
    retention_ms: int = 0


class DroppedTable(NamedTuple):
    """A dropped table."""

    table: NamedTable
    before: bool  # True if another operation dropped it: repeated requests are idempotent.


@final
class Catalogue:
    """The catalogue, at a node that takes part."""

    def __init__(
        self, metadata: Metadata, members: NodeList, servers: OtherServers, random: Random, *, most_copies: int
    ) -> None:
        self.register = metadata.catalogue  # The register of the catalogue's heads.
        self._metadata = metadata
        self._members = members
        self._ask, self._beside = servers.ask, servers.beside
        self._first_maps = FirstMaps(metadata, servers.ask)
        self._random = random
        self._most_copies = most_copies
        self.nodes = Nodes(metadata, members, self.tables)
        self.follower = Follower(metadata.maps, self.followed, random)  # To be run beside `metadata`.
        self._read: tuple[KnownMap | None, Mapping[str, NamedTable]] = None, {}  # The last read map, and its tables.
        # Maps, live and removed nodes for which nothing changes.
        self._grown_for: tuple[int, Sequence[bytes], frozenset[bytes]] | None = None
        self._grown_until_s = 0.0  # The time until which `_grown_for` is valid.

    def tables(self) -> Mapping[str, NamedTable]:
        """Return all tables, as known here. Raises `NotReady`."""
        known_map = self._metadata.known.get(self.register)
        if known_map is None:
            return {}
        read, tables = self._read
        if read is not known_map:  # Each step needs the tables, and decoding a thousand takes 20 ms.
            view = self._metadata.view(self.register)
            tables = {entry.key.decode(): decode_named(entry.record) for entry in view.scan(END_OF_NODES)}
            self._read = known_map, tables
        return tables

    def table(self, name: str) -> NamedTable:
        """Return one table. Raises UnknownDatabase, NotReady."""
        entry = self._metadata.view(self.register).get(name.encode()) if self.register in self._metadata.known else None
        if entry is None:
            raise no_table(name)
        return decode_named(entry.record)

    def followed(self) -> Mapping[bytes, Sequence[bytes]]:
        """Return the registers of all maps, each with the nodes to poll: its live acceptors, else a live node."""
        known, me = self._metadata.known, self._metadata.me.node
        alive = [node for node in self._members.alive() if node != me]
        first: dict[bytes, Sequence[AcceptorId]] = {self.register: ()}
        with contextlib.suppress(NotReady, UnknownDatabase):
            first |= {table.id: table.acceptors for table in self.tables().values()}
        found: dict[bytes, Sequence[bytes]] = {}
        for register, named in first.items():
            known_map = known.get(register)
            servers = named if known_map is None else known_map.acceptors.new
            acceptors = [one.node for one in servers if one.node in alive]
            # Without another acceptor this node asks others: the map may have been forced while it was away.
            found[register] = acceptors or alive[:1]
        return found

    # -- founding and growth -------------------------------------------------------------------------------------------

    async def found(self) -> None:
        """Found the catalogue, with this node as its only acceptor; idempotent. Requires: no other node founds it.

        Raises:
            Unavailable: the store is closed.
        """
        if self._metadata.registers.record(self.register) is None:
            await self._found(ZERO)
        await self._metadata.quorum_read(self.register)

    async def found_anew(self, force: int) -> None:
        """Found the catalogue again, since all nodes that could continue it are gone; `force`: the id of this force.

        The new catalogue begins with the local state of the old one, which may be empty.

        Raises:
            Conflict: this node has a record of it, as a former acceptor.
            Unavailable: the store is closed.
        """
        metadata = self._metadata
        if metadata.registers.record(self.register) is not None:
            raise Conflict("nothing was forced: this node is a former acceptor of the catalogue")
        known_map = metadata.known.get(self.register)
        if known_map is None:
            await self._found(Ballot(1, force, 0, 0))
        else:
            metadata.view(self.register)
            ballot = Ballot(known_map.generation + 1, force, 0, 0)
            forced = Forced(ballot.generation, force, tuple(sorted(known_map.acceptors.everyone)))
            payload = metadata.maps.map(self.register).highest(BELOW, MapValue()).encode()
            value = Value(Acceptors.of([metadata.me]), payload, (forced,))
            await self._first_maps.create_at(metadata.me, self.register, ballot, value)
        await metadata.quorum_read(self.register)

    async def _found(self, ballot: Ballot) -> None:
        me, secret = self._metadata.me, self._random.randbytes(SECRET_BYTES)
        first = first_value([(META, stamped(config_id(ballot.generation, 1), secret))])
        await self._first_maps.create_at(me, self.register, ballot, Value(Acceptors.of([me]), first.encode()))

    async def grow(self) -> bool:
        """Add acceptors to registers after nodes have joined, and take out those on nodes that tables have removed.

        Return True if a register has changed. The first acceptor among the live ones does it; two that try do no harm.
        A failure ends the call with a GossipKVError; the next call is soon, and may begin with another register.
        """
        alive, removed = self._members.alive(), self.removed()
        seen, now_s = (len(self._metadata.known), alive, removed), trio.current_time()
        if seen == self._grown_for and now_s < self._grown_until_s:  # Each step asks for this.
            return False
        odd = [register for register in sorted(self._metadata.known) if self._missing(register, alive, removed)]
        if not odd:
            self._grown_for, self._grown_until_s = seen, now_s + GROWN_S
        self._random.shuffle(odd)
        has_changed = False
        for register in odd[:MAX_GROWN]:
            # A change in the meantime may have made this unnecessary.
            if missing := self._missing(register, alive, removed):
                members = self._metadata.known[register].acceptors.new
                newcomers = await self._strangers(members, missing)
                stay = sorted(
                    (one for one in members if one.node not in removed), key=lambda one: one.node not in alive
                )
                size = max((size for size in SIZES if size <= len(stay) + len(newcomers)), default=0)
                if not size or (len(stay) == len(members) and len(newcomers) < missing):
                    continue
                await self.reconfigure(register, [*stay, *newcomers][:size], members)
                has_changed = True
        return has_changed

    def removed(self) -> frozenset[bytes]:
        """Return the nodes that tables have removed, by what is known here."""
        with contextlib.suppress(NotReady):
            return frozenset(uuid for uuid, node in self.nodes.named().items() if not node.weight)
        return frozenset()

    def _missing(self, register: bytes, alive: Sequence[bytes], removed: Collection[bytes]) -> int:
        """Return the number of acceptors that this node must add to a register, or put in place of removed ones."""
        known_map = self._metadata.known.get(register)
        members = () if known_map is None or known_map.ended else known_map.acceptors.new
        nodes = {member.node for member in members}
        staying = nodes.difference(removed)
        leavers = len(nodes) - len(staying)
        is_first = self._metadata.me.node == min((staying or nodes).intersection(alive), default=b"")
        free = len({*alive}.difference(nodes, removed))
        if not is_first or self._metadata.me not in members or (leavers and not staying and not free):
            return 0
        more = _STEPS.get(len(members), 0)  # A register of another size was left so by a command.
        return leavers or (more if len(members) + more <= self._most_copies and more <= free else 0)

    async def _strangers(self, members: Sequence[AcceptorId], wanted: int, *, but: bytes = b"") -> list[AcceptorId]:
        """Return up to `wanted` nodes that take part, are no acceptors yet, are not `but`, and are not removed."""
        others = {but, *(member.node for member in members), *self.removed()}
        nodes = [node for node in self._members.alive() if node not in others]
        self._random.shuffle(nodes)  # Spread the load of all tables.
        found: list[AcceptorId] = []
        for node in nodes:
            if len(found) < wanted:
                with contextlib.suppress(GossipKVError):  # Try the next node.
                    found.append(await self._members.invite(node))
        return found

    async def replace(self, register: bytes, leaver: bytes, comer: AcceptorId) -> bool:
        """Replace the acceptors on the node `leaver` by `comer`; return True if there were any.

        `comer` may be on the same node. If it is an acceptor already, another node takes the place, so that the number
        stays. The call may be repeated after any failure.

        Raises:
            Conflict: no node can take the place, or another node has changed the acceptors meanwhile.
            Unavailable: too few acceptors answer, or the new one does not; nothing has changed.
            Unknown: it may have been done.
        """
        known_map = await self._metadata.quorum_read(register)
        members = known_map.acceptors.new
        if not any(member.node == leaver and member != comer for member in members):
            return False  # If an earlier change was interrupted, this read of the register continues it.
        stay = [member for member in members if member.node not in {leaver, comer.node} or member == comer]
        if comer not in stay:
            stay.append(comer)
        stay += await self._strangers(stay, len(members) - len(stay), but=leaver)
        if len(stay) < len(members):
            words = "the new node is already an acceptor, and no other node can take the place"
            raise Conflict(f"{words}: add a node, or take the old one out (`gossipkv metadata leave`)")
        await self.reconfigure(register, stay, members)
        return True

    async def reconfigure(
        self, register: bytes, members: Sequence[AcceptorId], instead: Sequence[AcceptorId] | None = None
    ) -> None:
        """Set the acceptors of a register, which serve its map; fail unless they were `instead`, if given.

        Raises:
            BadRequest: these cannot be acceptors.
            Conflict: another node has changed the acceptors.
            Unavailable: too few of them answer, or a new one does not; nothing has changed.
            Unknown: it may have been done.
        """
        metadata, known_map = self._metadata, await self._metadata.quorum_read(register)
        wanted = Reconfigure(tuple(members), known_map.acceptors.new if instead is None else tuple(instead))
        outcome = await metadata.registers.change(register, wanted, timeout_s=WHOLE_S)
        if outcome.end is ChangeEnd.UNKNOWN:
            raise Unknown(f"the acceptors may or may not have changed: {outcome.message}")
        if outcome.end is ChangeEnd.REFUSED:
            raise (Conflict if outcome.code == Conflict.code else Unavailable)(outcome.message)
        await metadata.quorum_read(register)
        alive = [member.node for member in members if member.node in self._members.alive()]
        if metadata.me not in members and alive:  # Other nodes hear of the change from an acceptor that knows it.
            with contextlib.suppress(GossipKVError):  # Each node reads the register at intervals.
                await self._ask(self._random.choice(alive), "metadata_look", [register], ASK_S)

    # -- tables --------------------------------------------------------------------------------------------------------

    async def create(self, wanted: WantedTable, operation: bytes, timeout_s: float = WHOLE_S) -> NamedTable:
        """Create a table.

        `operation`: 20 random bytes; a repeated request with the same bytes returns the table that it created.

        Raises:
            BadRequest: the table is impossible.
            Conflict: a table of that name exists, or is being created.
            Unavailable: the table cannot be created now; nothing was created.
            Unknown: the table may have been created.
        """
        deadline = Deadline(timeout_s)
        with deadline.step("a read of the catalogue"):
            known_map = await self._metadata.quorum_read(self.register)
        if (created := self._created_by(wanted, operation)) is not None:
            return created
        name = wanted.name.removeprefix(HIDDEN)
        if not self.tables().keys().isdisjoint({name, HIDDEN + name}):
            raise _exists(name)
        with deadline.step("asking nodes to take part"):
            is_exact = bool(wanted.replication) and wanted.name == name
            wait_s = deadline.left_s() * INVITING_PART
            replication, hosts = await self.nodes.hosts(wanted.replication or REPLICATION, wait_s, is_exact=is_exact)
        shards = len(wanted.keys) if wanted.kind == HASH else 0
        id_ = self._random.randbytes(TABLE_ID_BYTES - MARK_BYTES) + _mark_of(wanted, operation)
        table = TableMeta(id_, name, wanted.kind, replication, shards, wanted.partitioner, (), *wanted[5:])
        nodes = placed({host.uuid: host.node for host in hosts})
        place = partial(first_map, table, wanted.keys, nodes, self._random, FIRST_CONFIG)
        try:
            first = await self._beside(place) if len(wanted.keys) > FEW_PARTITIONS else place()
        except (ProtocolError, LimitExceeded) as error:
            raise BadRequest(f"the table cannot be created: {error.message}", error.details) from error
        acceptors = [host.acceptor for host in hosts if host.acceptor is not None]
        self._random.shuffle(acceptors)  # Spread the load of all tables.
        size = max(size for size in SIZES if size <= min(len(acceptors), self._most_copies))
        servers = Acceptors.of(acceptors[:size])
        with deadline.step("storing the first map at its servers"):
            sequence = await self._first_maps.write(table.id, servers, first)
        with deadline.step("adding the nodes that hold the table"):
            await self.put_in(hosts, known_map.config)
        named = NamedTable(table.id, table.kind, servers.new, config_id(0, sequence))
        adding = _adding(wanted.name, named, operation, known_map.config)
        with contextlib.suppress(_IdUsed):  # The id tells which of two simultaneous requests created it.
            await self._decide(adding, wanted.name, deadline)
        created = None
        with contextlib.suppress(NotReady):
            judged = judgement(self._metadata.view(self.register), operation)
            is_own = judged is not None and judged[1].digest == adding.digest
            created = named if is_own else self._created_by(wanted, operation)
        if created is None:
            words = "the table may or may not be created; repeat the request with the same operation id"
            raise Unknown(words, {"operation": operation.hex()})
        with deadline.rest(), contextlib.suppress(GossipKVError):  # The table is created in any case.
            await self._metadata.quorum_read(created.id, Acceptors.of(created.acceptors))
        return created

    async def put_in(self, hosts: Sequence[PlaceableNode], base: int) -> None:
        """Add these nodes to the catalogue.

        Raises:
            Conflict: the catalogue refuses.
            GossipKVError: as `transact` does.
        """
        unnamed = [(host.uuid, *host.node, None, 0) for host in hosts if not host.is_named]
        puts = [
            Operation(self._random.randbytes(OPERATION_ID_BYTES), base, "set_node", 1, argument) for argument in unnamed
        ]
        added = OperationOutcome.DONE, OperationOutcome.CONFLICT  # The second: by another node.
        for at in range(0, len(puts), MAX_OPERATIONS):
            for answer in await self.transact(self.register, puts[at : at + MAX_OPERATIONS]):
                if answer.outcome not in added:
                    raise Conflict(answer.message or "the nodes of tables changed during the request; try again")

    def _created_by(self, wanted: WantedTable, operation: bytes) -> NamedTable | None:
        """Return the table that a repeated operation has created; None if the operation is unknown.

        Raises:
            Conflict: the operation created nothing, its table was dropped since, or the id is another operation's.
        """
        view = self._metadata.view(self.register)
        judged = judgement(view, operation)
        if judged is None:
            return None
        config, kept = judged
        entry = view.get(wanted.name.encode())
        if kept.outcome is OperationOutcome.DONE and entry is not None and entry.version == config:
            named = decode_named(entry.record)
            adding = _adding(wanted.name, named, operation, config)
            if named.id.endswith(_mark_of(wanted, operation)) and kept.digest == adding.digest:
                return named
        words = "was used before, for another table or a table that was dropped since"
        if kept.outcome is not OperationOutcome.DONE:
            words = "was used before, and its request was refused"
        raise Conflict(
            f"the table {wanted.name} was not created: the operation id {operation.hex()} {words}; draw a new id at "
            "random for each operation",
            {"operation": operation.hex()},
        )

    async def show(self, name: str, table: bytes, timeout_s: float = WHOLE_S) -> None:
        """Give a hidden table its name, so that clients see it; idempotent.

        Raises:
            BadRequest: there is no such hidden table.
            Unavailable: not now.
            Unknown: clients may see the table now or later.
        """
        deadline = Deadline(timeout_s)
        with deadline.step("a read of the catalogue"):
            known_map = await self._metadata.quorum_read(self.register)
        operation = self._random.randbytes(OPERATION_ID_BYTES)
        show = Operation(operation, known_map.config, "show_table", 1, (name.encode(), table))
        await self._decide(show, name, deadline)

    async def drop(
        self, name: str, operation: bytes, timeout_s: float = WHOLE_S, *, table: bytes | None = None
    ) -> DroppedTable:
        """Drop a table, for good; return the table, and whether another operation had dropped it before.

        `table`: the expected id, so that a repeated request does not drop the next table of that name.

        Raises:
            UnknownDatabase: no table has that name, or it has another id.
            Unavailable: not now.
            Unknown: the table may be dropped now or later.
        """
        deadline = Deadline(timeout_s)
        with deadline.step("a read of the catalogue"):
            known_map = await self._metadata.quorum_read(self.register)
        named = self.table(name)
        if table is not None and named.id != table:
            raise UnknownDatabase(f"the name {name} now belongs to another table", {"database": name})
        before = await self._end(named, operation, deadline.left_s(ASK_S))
        remove = Operation(operation, known_map.config, "remove_table", 1, (name.encode(), named.id))
        try:
            await self._decide(remove, name, deadline)
        except GossipKVError as error:  # The register is ended for good; a node that finds the name finishes the drop.
            raise Unknown(f"the table is dropped, but its name is not free yet: {error.message}") from error
        return DroppedTable(named, before)

    async def _end(self, table: NamedTable, operation: bytes, timeout_s: float) -> bool:
        """End a table's register; return True if another operation had ended it."""
        hint, end = Acceptors.of(table.acceptors), partial(ended_by, operation)
        outcome = await self._metadata.registers.change(table.id, end, timeout_s=timeout_s, hint=hint)
        if outcome.end is ChangeEnd.REFUSED:
            raise Unavailable(f"the table was not dropped: {outcome.message}")
        if outcome.end is ChangeEnd.UNKNOWN:
            raise Unknown(f"the table may or may not be dropped: {outcome.message}")
        return outcome.result != operation

    async def transact(
        self, register: bytes, operations: Sequence[Operation], timeout_s: float = WHOLE_S
    ) -> list[OperationAnswer]:
        """Run operations at a server of that map: this node, if it is one. Another may know a newer operation.

        Raises:
            Unavailable: no server could be asked.
            Unknown: a server was asked, and has not answered.
            UnknownDatabase: the table was dropped.
        """
        metadata, deadline = self._metadata, Deadline(timeout_s)
        known_map, answers = metadata.known.get(register), list[OperationAnswer]()
        if known_map is not None and metadata.me in known_map.acceptors.new:
            try:
                answers = await metadata.transact(register, operations, timeout_s)
            except NotReady:  # This node has left the servers without knowing it.
                with deadline.step("a read of the acceptors"):
                    known_map = await metadata.quorum_read(register)
        if answers and not is_unsupported(answers):
            return answers
        acceptors = () if known_map is None else known_map.acceptors.new
        servers = [acceptor.node for acceptor in acceptors if acceptor.node != metadata.me.node]
        self._random.shuffle(servers)
        servers.sort(key=lambda node: node not in self._members.alive())
        return await self._transact_at(servers, register, operations, deadline) or answers

    async def _transact_at(
        self, servers: Sequence[bytes], register: bytes, operations: Sequence[Operation], deadline: Deadline
    ) -> list[OperationAnswer]:
        """Run operations at the first of these servers that knows them; none may know them. Raises as `transact`."""
        sent: list[WireValue] = [operation.encode() for operation in operations]
        why, is_sent, answers = "no server is known", False, list[OperationAnswer]()
        for server in servers:
            left_s = deadline.left_s()
            if not left_s:
                break
            try:
                answer = await self._ask(server, "metadata_transact", [register, sent, int(left_s * 1000)], left_s)
                answers = answers_of(answer, operations)
                if not is_unsupported(answers):
                    break
            except UnknownDatabase:
                raise
            except (RequestError, NotReady, Overloaded, TimedOut, Unavailable) as error:  # The server judged nothing.
                why = error.message
            except GossipKVError as error:
                why, is_sent = error.message, True
        if answers:
            return answers
        if is_sent:
            raise Unknown(f"the change may or may not have been made: {why}")
        raise Unavailable(f"no server of the map takes operations: {why}")

    async def _decide(self, operation: Operation, name: str, deadline: Deadline) -> None:
        """Run one operation on the catalogue, which reads that name alone. Raises as `create`."""
        (answer,) = await self.transact(self.register, [operation], deadline.left_s())
        if answer.outcome is OperationOutcome.DONE or answer.code == ID_USED:
            with deadline.rest(), contextlib.suppress(GossipKVError):  # The operation is done in any case.
                await self._metadata.quorum_read(self.register)
        match answer.outcome:
            case OperationOutcome.CONFLICT:
                raise _exists(name)
            case OperationOutcome.REFUSED:
                if answer.code == EXISTS:
                    raise _exists(name)
                refusals = {ID_USED: _IdUsed, EXPIRED: Conflict}
                raise refusals.get(answer.code, BadRequest)(answer.message or "refused")
            case OperationOutcome.UNKNOWN if answer.code == UNSUPPORTED:
                raise Unavailable(f"no server of the catalogue knows this change: {answer.message}")
            case OperationOutcome.UNKNOWN:
                words = "the change may or may not have been made; repeat the request with the same operation id"
                raise Unknown(words, {"operation": operation.id.hex()})

    # -- upkeep --------------------------------------------------------------------------------------------------------

    async def tend_table(self, name: str) -> None:
        """Read a table's register by a quorum, and finish a begun drop; after a GossipKVError, call again later."""
        table = self.table(name)
        try:
            await self._metadata.quorum_read(table.id, Acceptors.of(table.acceptors))
        except UnknownDatabase:
            config = self._metadata.known[self.register].config
            operation = self._random.randbytes(OPERATION_ID_BYTES)
            remove = Operation(operation, config, "remove_table", 1, (name.encode(), table.id))
            await self._decide(remove, name, Deadline(ASK_S))

    async def tend(self) -> None:
        """Read the catalogue by a quorum, and forget tables that are gone or were never named; raises GossipKVError."""
        known_map = await self._metadata.quorum_read(self.register)
        named = {table.id for table in self.tables().values()}
        await self._metadata.let_go(named, known_map.config)


def is_unsupported(answers: Sequence[OperationAnswer]) -> bool:
    """Return True if a server does not know one of the operations."""
    return any(answer.code == UNSUPPORTED for answer in answers)


def keys_of(kind: str, partitions: int, bounds: Sequence[bytes]) -> list[bytes]:
    """Return the first keys of the partitions of a new table: numbers of shards, or starts of ranges.

    Raises BadRequest if the bounds do not ascend, or are those of a hash table.
    """
    if kind == HASH:
        if bounds:
            raise BadRequest("a hash table has no bounds: the hash of a key selects its shard")
        return [shard_key(number) for number in range(partitions)]
    if any(before >= after for before, after in zip([b"", *bounds], bounds, strict=False)):
        raise BadRequest("bounds must ascend, and the first must be above the lowest key")
    return [b"", *bounds]


def _mark_of(wanted: WantedTable, operation: bytes) -> bytes:
    """Return the end of a new table's id: it tells a repeated request from another one."""
    return sha256(pack((operation, *wanted))).digest()[:MARK_BYTES]


def _exists(name: str) -> Conflict:
    return Conflict(f"the table {name} exists, or was just dropped", {"database": name})


def _adding(name: str, named: NamedTable, operation: bytes, base: int) -> Operation:
    return Operation(operation, base, "add_table", 1, (name.encode(), *named))
