"""The catalogue of tables: how it is founded and grows, and how tables are made and dropped.

The catalogue is a map like a table's, in a register whose id all nodes of a cluster know.  It is founded at the first
`create_table`, with one acceptor, by the node that drew the cluster's id, and by no other: so two sides of a cut cannot
each found one.  As nodes join it grows to 3 and 5 acceptors; one that is dead is replaced by command only.

A table's first map is held by all of its servers, and ballot 0 is on each of them, before the catalogue names it; what
comes in between leaves pages that nobody names, which go in time (`tend`).  A table is dropped in its own register
first, for good, then in the catalogue: whoever finds only the first finishes.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

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
    Unavailable,
    Unknown,
    UnknownDatabase,
)
from gossipkv.placement.partition import Assignment, Partition, State
from gossipkv.register.ballot import ZERO, Ballot, draw_id
from gossipkv.register.configuration import Acceptors, Forced, Value
from gossipkv.register.messages import Kind, Request, Verdict, decode_reply, encode_request
from gossipkv.register.metadata.deadline import Deadline
from gossipkv.register.metadata.head import DROPPED_BEFORE, TRANSACTION_BYTES, Head, drop
from gossipkv.register.metadata.operations import EXPIRED, Answer, Operation
from gossipkv.register.metadata.pages import (
    OPERATION_ID_BYTES,
    Outcome,
    config_id,
)
from gossipkv.register.metadata.partitions import HASH, TABLE_ID_BYTES, Table, first_body, shard_key
from gossipkv.register.metadata.tables import CATALOGUE, EXISTS, NamedTable, decode_named
from gossipkv.register.metadata.tree import Tree
from gossipkv.register.proposer import End, Reconfigure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.metadata.server import Metadata, Others
    from gossipkv.register.metadata.tree import Changed
    from gossipkv.wire.rpc import Value as WireValue

FIRST_CONFIG: Final = config_id(0, 1)  # Of the first map of a register.
WHOLE_S: Final = 10.0  # Of a table's creation, unless it is told.
ASK_S: Final = 5.0
SMALL_BYTES: Final = 1 << 20  # A first map goes along with the question whether it is held; a larger one is fetched.
FEW_PARTITIONS: Final = 4096  # Are placed at once; more, beside the loop.
SIZES: Final = (1, 3, 5)  # Of the catalogue's acceptors, as it grows.


class Members(Protocol):
    """The nodes of the cluster, as the catalogue knows them."""

    def alive(self) -> Sequence[bytes]:
        """Return uuids of nodes that seem to be alive, in their order, this one among them."""
        ...

    async def invite(self, node: bytes) -> AcceptorId:
        """Have a node take part: it is pinned, and has a store, when this returns.  Raises GossipKVError."""
        ...


class Wanted(NamedTuple):
    """A table that is wanted."""

    name: str
    kind: str
    replication: int
    keys: Sequence[bytes]  # The first key of each partition, in order.


class Dropped(NamedTuple):
    """A table that is dropped."""

    table: NamedTable
    before: bool  # By somebody else: what was asked twice is done once.


@final
class Catalogue:
    """The catalogue, at a node that takes part."""

    def __init__(
        self, metadata: Metadata, members: Members, others: Others, random: Random, *, most_copies: int
    ) -> None:
        self._metadata = metadata
        self._members = members
        self._ask, self._beside = others.ask, others.beside
        self._random = random
        self._most_copies = most_copies
        self._read: tuple[bytes, Mapping[str, NamedTable]] = b"", {}  # Of which root, and what that says.

    @property
    def register(self) -> bytes:
        """The register of its heads."""
        return self._metadata.catalogue

    def tables(self) -> Mapping[str, NamedTable]:
        """All tables, as known here.  Raises `NotReady`."""
        known = self._metadata.known.get(self.register)
        if known is None:
            return {}
        root, tables = self._read
        if root != known.head.root:  # It is asked for at each step, and a thousand tables take 20 ms.
            tree = self._metadata.tree(self.register)
            tables = {entry.key.decode(): decode_named(entry.record) for entry in tree.scan()}
            self._read = known.head.root, tables
        return tables

    def table(self, name: str) -> NamedTable:
        """One table.  Raises UnknownDatabase, NotReady."""
        entry = self._metadata.tree(self.register).get(name.encode()) if self.register in self._metadata.known else None
        if entry is None:
            raise UnknownDatabase(f"there is no table {name}", {"database": name})
        return decode_named(entry.record)

    # -- founding and growing ----------------------------------------------------------------------------------------

    async def found(self) -> None:
        """Found the catalogue, with this node as its only acceptor; again is once.  Requires: nobody else may.

        Raises:
            Unavailable: the store is closed.
        """
        if self._metadata.registers.record(self.register) is None:
            await self._found(ZERO, Tree.empty(CATALOGUE.name).edit(FIRST_CONFIG).finish())
        await self._metadata.quorum_read(self.register)

    async def found_anew(self, force: int) -> None:
        """Found the catalogue again, since all who might have gone on with it are gone; `force`: the id of this force.

        It begins with what this node knows of it, which may be nothing.

        Raises:
            Conflict: this node has a record of it, as an acceptor that was.
            Unavailable: the store is closed.
            NotReady: not all that this node knows of it is here.
        """
        metadata = self._metadata
        if metadata.registers.record(self.register) is not None:
            raise Conflict("not forced: this node was an acceptor of the catalogue, and is none any more")
        known = metadata.known.get(self.register)
        if known is None:
            await self._found(Ballot(1, force, 0, 0), Tree.empty(CATALOGUE.name).edit(config_id(1, 1)).finish())
        else:
            metadata.tree(self.register)
            ballot = Ballot(known.generation + 1, force, 0, 0)
            forced = Forced(ballot.generation, force, tuple(sorted(known.acceptors.everyone)))
            value = Value(Acceptors.of([metadata.me]), known.head.encode(), (forced,))
            await self._create_at(metadata.me, self.register, ballot, value)
        metadata.registers.learn(self.register)
        await metadata.quorum_read(self.register)

    async def _found(self, ballot: Ballot, first: Changed) -> None:
        metadata, config = self._metadata, config_id(ballot.generation, 1)
        await metadata.pin(self.register, first, config)
        head = Head(config, self._random.randbytes(TRANSACTION_BYTES), first.root)
        await self._create_at(metadata.me, self.register, ballot, Value(Acceptors.of([metadata.me]), head.encode()))

    async def grow(self) -> bool:
        """Have more acceptors, if nodes have joined and this one is to see to it; whether there are more now.

        The one that is first among the acceptors that seem to be alive sees to it; two who try are harmless.
        """
        known = self._metadata.known.get(self.register)
        alive = self._members.alive()
        if known is None or self._metadata.me not in known.acceptors.new:
            return False
        members = known.acceptors.new
        if min((one.node for one in members if one.node in alive), default=b"") != self._metadata.me.node:
            return False
        if len(members) not in SIZES:  # A command has left it so.
            return False
        missing = next((size for size in SIZES if size > len(members)), 0) - len(members)
        strangers = [node for node in alive if node not in {one.node for one in members}]
        if missing <= 0 or len(members) + missing > self._most_copies or len(strangers) < missing:
            return False
        newcomers: list[AcceptorId] = []
        for node in strangers:
            if len(newcomers) < missing:
                with contextlib.suppress(GossipKVError):  # Another one, then.
                    newcomers.append(await self._members.invite(node))
        return len(newcomers) == missing and await self.reconfigure(self.register, [*members, *newcomers])

    async def reconfigure(self, register: bytes, members: Sequence[AcceptorId]) -> bool:
        """Have these be the acceptors of a register, and the servers of its map; whether they are.

        Who is new gets the head's pages first, and those of a later head when it is asked for its promise.
        """
        metadata, known = self._metadata, await self._metadata.quorum_read(register)
        head = known.head
        params: list[WireValue] = [register, metadata.me.node, None, head.root, head.config, []]
        metadata.pages(register, [head.root])  # As who asks for it: it stays here until newcomers have it.
        for newcomer in sorted(set(members) - known.acceptors.everyone):
            if newcomer != metadata.me:
                held = await self._ask(newcomer.node, "metadata_hold", params, WHOLE_S)
                if held != [newcomer.store, head.root]:
                    raise Unavailable(f"{newcomer} has another store by now")
        outcome = await metadata.registers.change(
            register, Reconfigure(tuple(members), known.acceptors.new), timeout_s=WHOLE_S
        )
        if outcome.end is not End.DONE:
            return False
        await metadata.quorum_read(register)
        return True

    # -- tables ------------------------------------------------------------------------------------------------------

    async def create(self, wanted: Wanted, operation: bytes, timeout_s: float = WHOLE_S) -> NamedTable:
        """Make a table.

        `operation`: 20 random bytes; whoever asks again under the same ones is told of the table that they made.

        Raises:
            BadRequest: it cannot be as it is wanted.
            Conflict: there is a table of that name, or somebody else is making one.
            Unavailable: not now; nothing was made.
            Unknown: it may have been made.
        """
        deadline = Deadline(timeout_s)
        with deadline.step("a read of the catalogue"):
            known = await self._metadata.quorum_read(self.register)
        if (made := self._made(wanted.name, operation)) is not None:
            return made
        if wanted.name in self.tables():
            raise Conflict(f"there is a table {wanted.name} already")
        with deadline.step("asking nodes to take part"):
            hosts = await self._hosts(wanted.replication)
        shards = len(wanted.keys) if wanted.kind == HASH else 0
        id_ = self._random.randbytes(TABLE_ID_BYTES)
        table = Table(id_, wanted.name, wanted.kind, wanted.replication, shards)
        nodes = [host.node for host in hosts]
        place = partial(_first_map, table, wanted.keys, nodes, self._random)
        try:
            first = await self._beside(place) if len(wanted.keys) > FEW_PARTITIONS else place()
        except (ProtocolError, LimitExceeded) as error:
            raise BadRequest(f"no such table can be: {error.message}", error.details) from error
        self._random.shuffle(hosts)  # Not the same for all tables.
        servers = Acceptors.of(hosts[: max(size for size in SIZES if size <= min(len(hosts), self._most_copies))])
        with deadline.step("its first map at all of its servers"):
            await self._write_first(table.id, servers, first)
        named = NamedTable(table.id, table.kind, servers.new, FIRST_CONFIG)
        argument = (wanted.name.encode(), *named)
        add = Operation(operation, known.config, "add_table", 1, argument)
        await self._decide(add, deadline)
        with deadline.rest(), contextlib.suppress(GossipKVError):  # It is made, whatever is known of it here.
            named = self._made(wanted.name, operation) or named
            await self._metadata.quorum_read(named.id, Acceptors.of(named.acceptors))
        return named

    def _made(self, name: str, operation: bytes) -> NamedTable | None:
        """The table that an operation has made, asked for again; None: no operation of that id is known.

        Raises:
            Conflict: it made nothing, or what it made was dropped since.
        """
        tree = self._metadata.tree(self.register)
        judged = tree.judgement(operation)
        if judged is None:
            return None
        config, outcome = judged
        entry = tree.get(name.encode())
        if outcome is Outcome.DONE and entry is not None and entry.version == config:
            return decode_named(entry.record)
        words = "was dropped since" if outcome is Outcome.DONE else "was refused when it was asked for"
        raise Conflict(f"the table {name} {words}", {"operation": operation.hex()})

    async def drop(
        self, name: str, operation: bytes, timeout_s: float = WHOLE_S, *, table: bytes | None = None
    ) -> Dropped:
        """Drop a table, for good; returns which it was, and whether another operation than this had dropped it before.

        `table`: the id that it has, so that who asks again does not drop the next one of that name.

        Raises:
            UnknownDatabase: there is none of that name, or none of that id has it.
            Unavailable: not now.
            Unknown: it may be dropped by now, or later.
        """
        deadline = Deadline(timeout_s)
        with deadline.step("a read of the catalogue"):
            known = await self._metadata.quorum_read(self.register)
        named = self.table(name)
        if table is not None and named.id != table:
            raise UnknownDatabase(f"the table {name} is another one by now", {"database": name})
        before = await self._end(named, operation, deadline.left_s(ASK_S))
        remove = Operation(operation, known.config, "remove_table", 1, (name.encode(), named.id))
        try:
            await self._decide(remove, deadline)
        except GossipKVError as error:  # Its register is ended for good: whoever finds the name finishes.
            raise Unknown(f"the table is dropped, and its name is not free yet: {error.message}") from error
        return Dropped(named, before)

    async def _end(self, table: NamedTable, operation: bytes, timeout_s: float) -> bool:
        """End a table's register; whether another operation had."""
        hint = Acceptors.of(table.acceptors)
        outcome = await self._metadata.registers.change(table.id, drop(operation), timeout_s=timeout_s, hint=hint)
        if outcome.end is End.REFUSED:
            raise Unavailable(f"the table is not dropped: {outcome.message}")
        if outcome.end is End.UNKNOWN:
            raise Unknown(f"whether the table is dropped is not known: {outcome.message}")
        return outcome.result == DROPPED_BEFORE

    async def transact(
        self, register: bytes, operations: Sequence[Operation], timeout_s: float = WHOLE_S
    ) -> list[Answer]:
        """Have operations done by a server of that map: this node, if it is one.

        Raises:
            Unavailable: none of them could be asked.
            Unknown: one was asked, and has not answered.
            UnknownDatabase: the table was dropped.
        """
        metadata, deadline = self._metadata, Deadline(timeout_s)
        known = metadata.known.get(register)
        if known is not None and metadata.me in known.acceptors.new:
            try:
                return await metadata.transact(register, operations, timeout_s)
            except NotReady:  # It has left, and did not know.
                with deadline.step("a read of who decides"):
                    known = await metadata.quorum_read(register)
        servers = [] if known is None else [one.node for one in known.acceptors.new if one.node != metadata.me.node]
        self._random.shuffle(servers)
        sent: list[WireValue] = [operation.encode() for operation in operations]
        why, is_sent = "nobody is known", False
        for server in sorted(servers, key=lambda node: node not in self._members.alive()):
            left_s = deadline.left_s()
            if not left_s:
                break
            try:
                answer = await self._ask(server, "metadata_transact", [register, sent, int(left_s * 1000)], left_s)
                return _answers_of(answer, operations)
            except UnknownDatabase:
                raise
            except (RequestError, NotReady, Overloaded, Unavailable) as error:  # It has judged nothing.
                why = error.message
            except GossipKVError as error:
                why, is_sent = error.message, True
        if is_sent:
            raise Unknown(f"whether it was done is not known: {why}")
        raise Unavailable(f"no server of that map takes operations: {why}")

    async def _decide(self, operation: Operation, deadline: Deadline) -> None:
        """Have one operation done on the catalogue.  Raises as `create`."""
        (answer,) = await self.transact(self.register, [operation], deadline.left_s())
        match answer.outcome:
            case Outcome.DONE:
                with deadline.rest(), contextlib.suppress(GossipKVError):  # It is done, whatever is known of it here.
                    await self._metadata.quorum_read(self.register)
            case Outcome.CONFLICT:
                raise Conflict(answer.message or "another change of the catalogue came first")
            case Outcome.REFUSED:
                raise (
                    Conflict(answer.message)
                    if answer.code in {EXISTS, EXPIRED}
                    else BadRequest(answer.message or "refused")
                )
            case Outcome.UNKNOWN:
                raise Unknown("whether it was done is not known: ask by its id", {"operation": operation.id.hex()})

    async def _hosts(self, wanted: int) -> list[AcceptorId]:
        """Nodes that take part, of those that seem to be alive.  Raises `Unavailable`: fewer than are wanted."""
        found: dict[bytes, AcceptorId] = {}
        failed: list[str] = []

        async def invite(node: bytes) -> None:
            try:
                found[node] = await self._members.invite(node)
            except GossipKVError as error:
                failed.append(f"{node.hex()[:8]}: {error.message}")

        with trio.move_on_after(ASK_S):
            async with trio.open_nursery() as nursery:
                for node in self._members.alive():
                    nursery.start_soon(invite, node)
        if len(found) < wanted:
            said = "; ".join(failed) or "no others are known"
            raise Unavailable(f"a table of {wanted} replicas needs so many nodes, and {len(found)} take part: {said}")
        return [found[node] for node in sorted(found)]

    async def _write_first(self, register: bytes, servers: Acceptors, first: Changed) -> None:
        """Have every server hold the first map, then ballot 0.  Raises `Unavailable`: one did not."""
        metadata = self._metadata
        await metadata.pin(register, first, FIRST_CONFIG)
        head = Head(FIRST_CONFIG, self._random.randbytes(TRANSACTION_BYTES), first.root)
        value = Value(servers, head.encode())
        is_small = sum(map(len, first.pages.values())) <= SMALL_BYTES
        pages: list[WireValue] = [*(first.pages.values() if is_small else [first.pages[first.root]])]
        params: list[WireValue] = [register, metadata.me.node, None, first.root, FIRST_CONFIG, pages]

        async def write(server: AcceptorId) -> None:
            if server != metadata.me:
                held = await self._ask(server.node, "metadata_hold", params, WHOLE_S)
                if held != [server.store, first.root]:
                    raise Unavailable(f"{server} has another store by now")
            await self._create_at(server, register, ZERO, value)

        try:
            async with trio.open_nursery() as nursery:
                for server in servers.new:
                    nursery.start_soon(write, server)
        except* GossipKVError as errors:
            raise Unavailable(f"a server does not take the first map: {errors.exceptions[0]}") from errors

    async def _create_at(self, server: AcceptorId, register: bytes, ballot: Ballot, value: Value) -> None:
        request = encode_request(Request(Kind.CREATE, register, server, 0, ballot, value))
        if server == self._metadata.me:
            reply = await self._metadata.registers.answer(request)
        else:
            answer = await self._ask(server.node, "register", [request], ASK_S)
            reply = answer if isinstance(answer, bytes) else b""
        verdict = decode_reply(reply).verdict
        if verdict is not Verdict.OK:
            raise Unavailable(f"{server} does not begin a register: {verdict.name}")

    # -- now and then ------------------------------------------------------------------------------------------------

    async def tend_table(self, name: str) -> None:
        """Read a table's register by a quorum; a drop that somebody has begun there is finished here.

        Raises:
            GossipKVError: it could not be read, or not be finished; the next time.
        """
        table = self.table(name)
        try:
            await self._metadata.quorum_read(table.id, Acceptors.of(table.acceptors))
        except UnknownDatabase:
            config = self._metadata.known[self.register].head.config
            operation = self._random.randbytes(OPERATION_ID_BYTES)
            remove = Operation(operation, config, "remove_table", 1, (name.encode(), table.id))
            await self._decide(remove, Deadline(ASK_S))

    async def tend(self) -> None:
        """Read the catalogue by a quorum, and let go of tables that are gone or never named; raises GossipKVError."""
        known = await self._metadata.quorum_read(self.register)
        named = {table.id for table in self.tables().values()}
        await self._metadata.let_go(named, known.head.config)


def _first_map(table: Table, keys: Sequence[bytes], nodes: Sequence[bytes], draw: Random) -> Changed:
    """Every partition on nodes in turn, each of them AVAILABLE at once: there is nothing to load yet."""
    partitions = {
        key: Partition.of(
            draw_id(draw),
            [
                Assignment(draw_id(draw), nodes[(at + slot) % len(nodes)], slot, State.AVAILABLE)
                for slot in range(table.replication)
            ],
        )
        for at, key in enumerate(keys)
    }
    return first_body(table, partitions, FIRST_CONFIG)


def keys_of(kind: str, partitions: int, bounds: Sequence[bytes]) -> list[bytes]:
    """The first keys of the partitions of a new table: shards by their number, ranges by where each begins.

    Raises:
        BadRequest: bounds that do not ascend, or that a hash table has none of.
    """
    if kind == HASH:
        if bounds:
            raise BadRequest("a hash table has no bounds: a key's shard is its hash modulo their number")
        return [shard_key(number) for number in range(partitions)]
    if any(one >= other for one, other in zip([b"", *bounds], bounds, strict=False)):
        raise BadRequest("bounds ascend, and the first is above the lowest key")
    return [b"", *bounds]


def _answers_of(value: WireValue, operations: Sequence[Operation]) -> list[Answer]:
    answers = [_answer_of(row) for row in value] if isinstance(value, list) else []
    if [None if answer is None else answer.operation for answer in answers] == [one.id for one in operations]:
        return [answer for answer in answers if answer is not None]
    raise Unknown("a server answered what is no answer to those operations")


def _answer_of(row: WireValue) -> Answer | None:
    match row:
        case [bytes(operation), int(outcome), str(code), str(message)] if outcome in set(Outcome):
            return Answer(operation, Outcome(outcome), code, message)
    return None
