"""The methods that create and drop tables, and that show and change the acceptors of registers.

Each method awaits one workflow of `register.metadata.catalogue`. If this node cannot found the catalogue, the first
`create_table` is forwarded to the node that can.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import BadRequest, Conflict, GossipKVError, NotReady, Unavailable, Unknown, UnknownDatabase
from gossipkv.register.ballot import draw_id
from gossipkv.register.configuration import Acceptors
from gossipkv.register.messages import AcceptorVerdict, RegisterRequest, RequestKind, decode_reply, encode_request
from gossipkv.register.metadata.catalogue import WantedTable, keys_of
from gossipkv.register.metadata.deadline import Deadline
from gossipkv.register.metadata.known import generation_of, sequence_of
from gossipkv.register.metadata.operations import OPERATION_ID_BYTES
from gossipkv.register.metadata.partitions import HASH, decode_partition, decode_table
from gossipkv.register.proposal import ChangeEnd
from gossipkv.settings.databases import HIDDEN
from gossipkv.table.rpc import requests as table_requests
from gossipkv.table.rpc.transact import START_OR_FORCE
from gossipkv.wire.results import DeferredResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from gossipkv.errors import Detail
    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.register.metadata.partitions import TableMeta
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.register.metadata.tables import NamedTable
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value

    Method = Callable[[Arguments], Value | DeferredResult]

MAX_SHOWN: Final = 512  # Partitions in one answer, which is made in one step while other requests wait.
LOOK_S: Final = 2.0  # An acceptor that has not answered by then counts as silent.
STATUS_MS: Final = 4000  # Default timeout of `metadata_status`.
STATUS_PART: Final = 0.8  # Share of that timeout for the acceptors; the rest is for the answer.
FORWARD_S: Final = 60.0
FOUNDING_PART: Final = 0.8  # Share of the timeout for finding the founder; the rest is for asking it.
SPREAD_S: Final = 1.0  # Wait until live nodes know a new table: most do within 200 ms.


@final
class AdminMethods:
    """The methods about tables and acceptors."""

    def __init__(self, participant: MetadataParticipant, random: Random) -> None:
        self._participant, self._service = participant, participant.service
        self._directory, self._peers = participant.directory, participant.peers
        self._random = random
        self.methods: dict[bytes, Method] = {
            b"create_table": self._create_table,
            b"drop_table": self._drop_table,
            b"metadata_status": self._status,
            b"metadata_join": partial(self._change, joins=True),
            b"metadata_leave": partial(self._change, joins=False),
            b"metadata_replace": self._replace,
            b"metadata_force": self._force,
        }

    def tables(self) -> list[dict[str, Value]]:
        """Return the tables for `databases`; none while the catalogue cannot be read, since datasets still answer."""
        return [{"name": name, "kind": table.kind, **self._traits(table.id)} for name, table in self._shown()]

    def names(self) -> set[str]:
        """Return the names of the tables for `databases`."""
        return {name for name, _ in self._shown()}

    def _shown(self) -> list[tuple[str, NamedTable]]:
        catalogue = self._service.catalogue
        with contextlib.suppress(GossipKVError):
            tables = {} if catalogue is None else catalogue.tables()
            return [(name, table) for name, table in tables.items() if not name.startswith(HIDDEN)]
        return []

    def _traits(self, table: bytes) -> dict[str, Value]:
        """Return the time key, smear flag and lifetime that a table has, if its map is here."""
        metadata = self._service.metadata
        known_map = None if metadata is None else metadata.known.get(table)
        if metadata is None or known_map is None or known_map.ended:
            return {}
        with contextlib.suppress(GossipKVError):  # A page of the map may still be missing.
            return traits(decode_table(metadata.view(table).meta))
        return {}

    def partition_map(self, name: str, start: bytes | None, limit: int | None) -> Value:
        """Return a page of a table's map as known here, from a key on; the next page starts at the key in `next`.

        Raises:
            UnknownDatabase: there is no such table.
            NotReady: its map is not here yet.
        """
        metadata, catalogue = self._service.taking_part(name)
        table = catalogue.table(name)
        tree = metadata.view(table.id)
        names = self._directory.known_names()
        partitions: list[Value] = []
        after: bytes | None = None
        for entry in tree.scan(start or b""):
            if len(partitions) == min(limit or MAX_SHOWN, MAX_SHOWN):
                after = entry.key
                break
            partition = decode_partition(entry.record)
            assignments: list[Value] = [
                {
                    "node": names.get(assignment.node) or assignment.node.hex(),
                    "slot": assignment.slot,
                    "state": assignment.state.name,
                    "id": f"{assignment.id:016x}",
                }
                for assignment in partition.assignments
            ]
            partitions.append({"id": partition.id, "start": entry.key, "assignments": assignments})
        described = decode_table(tree.meta)
        of_hash: dict[str, Value] = {
            "partitioner": described.partitioner,
            "partition_count": described.shards,
            "groups": [[names.get(node) or node.hex() for node in group] for group in described.groups],
        }
        return {
            "kind": described.kind,
            "replication": described.replication,
            **(of_hash if described.kind == HASH else {}),
            **traits(described),
            "table": table.id.hex(),
            "config": tree.config,
            "addresses": {**self._directory.addresses()},
            "partitions": partitions,
            "next": after,
        }

    def _create_table(self, arguments: Arguments) -> DeferredResult:
        wanted = table_requests.create_table(arguments)
        operation = wanted.operation or self._random.randbytes(OPERATION_ID_BYTES)

        async def create() -> Value:
            deadline = Deadline(wanted.timeout_ms / 1000)
            try:
                with deadline.step("looking for the catalogue"):
                    await self._participant.found(deadline.left_s() * FOUNDING_PART)
            except Unavailable as elsewhere:
                founder = elsewhere.details.get("founder")
                if not isinstance(founder, str):
                    raise
                left_ms = int(deadline.left_s() * 1000 * FOUNDING_PART)
                sent: Value = {**wanted.options(), "operation": operation, "timeout_ms": max(1, left_ms)}
                node = self._directory.uuid_of(founder)
                made = await self._peers.ask(node, "create_table", [wanted.name, sent], deadline.left_s())
                with deadline.rest(), contextlib.suppress(GossipKVError):  # The client may use the table here next.
                    await self._participant.found()
                return made
            metadata, catalogue = self._service.taking_part()
            keys = keys_of(wanted.kind, wanted.partitions, wanted.bounds)
            made_of = WantedTable(wanted.name, wanted.kind, wanted.replication, keys, *wanted[-5:])
            table = await catalogue.create(made_of, operation, deadline.left_s())
            known_map = metadata.known.get(table.id)
            config = table.config if known_map is None else known_map.config
            await self._spread(wanted.name, config)
            self._participant.poll.await_late()
            return {"table": table.id.hex(), "config": config, **self._replicas(table.id)}

        return DeferredResult(create)

    def _replicas(self, table: bytes) -> dict[str, Value]:
        """Return the wanted replicas of a new table, the replicas of each partition, and the members without any."""
        with contextlib.suppress(NotReady):  # The table is made in any case.
            metadata, _ = self._service.taking_part()
            tree = metadata.view(table)
            described, first = decode_table(tree.meta), next(iter(tree.scan()))
            return {
                "replication": described.replication,
                "partition_count": len(tree),
                "replicas": len(decode_partition(first.record).assignments),
                "left_out": [*sorted(self._directory.absent().values())],
            }
        return {}

    async def _spread(self, table: str, config: int) -> None:
        """Wait until all live nodes know a table, at most `SPREAD_S`, since its creator may use any of them next."""
        with trio.move_on_after(SPREAD_S):
            metadata, _ = self._service.taking_part()
            for node in self._directory.alive():
                while node != metadata.me.node and not await self._knows(node, table, config):  # noqa: ASYNC110  # Remote state has no event.
                    await trio.sleep(SPREAD_S / 50)

    async def _knows(self, node: bytes, table: str, config: int) -> bool:
        """Return True if a node shows a table's map, as to a client, or does not answer."""
        try:
            shown = await self._peers.ask(node, "partition_map", [table, {"limit": 1}], SPREAD_S)
        except (NotReady, UnknownDatabase):  # The node does not take part yet, or has not heard of the table.
            return False
        except GossipKVError:
            return True
        return not isinstance(shown, dict) or not isinstance(at := shown.get("config"), int) or at >= config

    def _drop_table(self, arguments: Arguments) -> DeferredResult:
        wanted = table_requests.drop_table(arguments)
        operation = wanted.operation or self._random.randbytes(OPERATION_ID_BYTES)

        async def drop() -> Value:
            deadline = Deadline(wanted.timeout_ms / 1000)
            with deadline.step("looking for the catalogue"):
                metadata, catalogue = await self._participant.informed()
            dropped = await catalogue.drop(wanted.name, operation, deadline.left_s(), table=wanted.table)
            config = metadata.known[catalogue.register].config
            return {"table": dropped.table.id.hex(), "config": config, "before": dropped.before}

        return DeferredResult(drop)

    def _status(self, arguments: Arguments) -> DeferredResult:
        table = arguments.text_or_nil("table")
        timeout_ms = arguments.options("timeout_ms").number("timeout_ms", least=1) or STATUS_MS

        async def tell() -> Value:
            if self._service.catalogue is None:
                return []
            deadline = Deadline(timeout_ms / 1000 * STATUS_PART)
            with deadline.half():
                await self._participant.informed()
            metadata, catalogue = self._service.taking_part()
            if table is not None:
                return [await self._tell(metadata, catalogue, table, deadline)]
            silent: dict[bytes, str] = {}
            statuses: list[Value] = [await self._tell(metadata, catalogue, None, deadline, silent)]
            for name in catalogue.tables():
                with contextlib.suppress(UnknownDatabase):  # The table was dropped a moment ago.
                    statuses.append(await self._tell(metadata, catalogue, name, deadline, silent))
            return statuses

        return DeferredResult(tell, may_end=True)

    def _change(self, arguments: Arguments, *, joins: bool) -> DeferredResult:
        table, name = table_requests.membership(arguments)

        async def change() -> Value:
            metadata, catalogue = await self._participant.informed()
            register = await _register_of(metadata, catalogue, table)
            known_map = await metadata.quorum_read(register)
            node = self._directory.uuid_of(name)
            before = known_map.acceptors.new
            members = {acceptor for acceptor in before if acceptor.node != node}
            if joins and node in catalogue.removed():
                raise Conflict(f"{name} was removed from tables: first add it with `gossipkv node add {name}`")
            if joins:
                members.add(await self._directory.invite(node))
            if not members:
                raise BadRequest(f"{name} is the last acceptor and cannot leave")
            await catalogue.reconfigure(register, sorted(members), before)
            return await self._tell(metadata, catalogue, table)

        return DeferredResult(change)

    def _replace(self, arguments: Arguments) -> DeferredResult:
        table, old, new = table_requests.replacement(arguments)

        async def replace() -> Value:
            metadata, catalogue = await self._participant.informed()
            try:
                leaving = self._directory.uuid_of(old)
            except Unavailable as error:
                raise Unavailable(f"{error.message}: `gossipkv metadata status` lists the acceptors") from error
            newcomer = await self._invite(new)
            register = await _register_of(metadata, catalogue, table)
            name = table or "the catalogue"
            details: dict[str, Detail] = {"register": name}  # An error concerns this register alone.
            hint = None if table is None else Acceptors.of(catalogue.table(table).acceptors)
            try:
                known_map = await metadata.quorum_read(register, hint)
            except (NotReady, Unavailable) as error:
                raise Unavailable(f"{name}: {error.message}; {START_OR_FORCE}", details) from error
            if old == new:
                leaving = self._former(old, newcomer, known_map.acceptors.new)
            try:
                is_new = await catalogue.replace(register, leaving, newcomer)
            except (Conflict, NotReady, Unavailable, Unknown) as error:
                raise type(error)(f"{name}: {error.message}", details) from error
            acceptors = metadata.known[register].acceptors.new
            nodes: list[Value] = [self._directory.name_of(acceptor.node) for acceptor in acceptors]
            return {"table": table, "replaced": is_new, "nodes": nodes}

        return DeferredResult(replace)

    async def _invite(self, name: str) -> AcceptorId:
        """Ask a member to take part, so that it can become an acceptor; return its acceptor id.

        Raises:
            Unavailable: the node is no live member, or has no store to decide with.
        """
        node = self._directory.uuid_of(name)
        if node not in self._directory.alive():
            raise Unavailable(
                f"{name} cannot become an acceptor: it is not a live member of this cluster; name a live node, or "
                "without one, take the old acceptor out (`gossipkv metadata leave`)"
            )
        try:
            return await self._directory.invite(node)
        except GossipKVError as error:
            raise Unavailable(f"{name} cannot become an acceptor: it has no store: {error.message}") from error

    def _former(self, name: str, newcomer: AcceptorId, members: Sequence[AcceptorId]) -> bytes:
        """Return the uuid that a member with a new store, and maybe a new uuid, has in the register.

        Raises:
            BadRequest: several uuids are possible.
        """
        nodes = {member.node for member in members}
        strangers = sorted(nodes - self._directory.names().keys())
        if newcomer.node in nodes or not strangers:
            return newcomer.node
        if len(strangers) > 1:
            digits = " or ".join(node.hex() for node in strangers)
            raise BadRequest(f"{name} had another uuid before, {digits}: name the old node by its uuid")
        return strangers[0]

    def _force(self, arguments: Arguments) -> DeferredResult:
        table, survivors = table_requests.force(arguments)

        async def force() -> Value:
            nodes = [self._directory.uuid_of(name) for name in survivors]
            if table is None and not self._service.knows_catalogue:
                return await self._found_anew(survivors, nodes)
            metadata, catalogue = self._service.taking_part()
            register = await _register_of(metadata, catalogue, table)
            known_map = metadata.known.get(register)
            if table is None and known_map is not None:
                acceptors = sorted(known_map.acceptors.everyone)
                if not {acceptor.node for acceptor in acceptors}.intersection(nodes):
                    answers = [await self._look_at(metadata, register, acceptor, {}, LOOK_S) for acceptor in acceptors]
                    if None in answers:
                        raise Conflict("nothing was forced: an acceptor of the catalogue answers, but is no survivor")
                    return await self._found_anew(survivors, nodes)
            accepting = [await self._directory.invite(node) for node in nodes]  # Their present stores count.
            before = None if known_map is None else known_map.acceptors
            outcome = await metadata.registers.force(register, accepting, before)
            if outcome.end is ChangeEnd.REFUSED:
                words = outcome.message
                for acceptor in {*accepting, *(() if before is None else before.everyone)}:
                    words = words.replace(str(acceptor), self._directory.name_of(acceptor.node))
                raise Conflict(f"nothing was forced: {words}")
            if outcome.end is ChangeEnd.UNKNOWN or outcome.value is None:
                raise Unknown(f"the force may or may not have taken effect: {outcome.message}")
            await metadata.quorum_read(register)
            status = await self._tell(metadata, catalogue, table)
            left_out = outcome.value.forces[-1].left_out
            names = ", ".join(self._directory.name_of(acceptor.node) for acceptor in left_out)
            lost = f"changes only accepted by {names} are lost" if names else "nothing is lost: all acceptors survived"
            return {**status, "lost": lost}

        return DeferredResult(force)

    async def _found_anew(self, names: Sequence[str], nodes: Sequence[bytes]) -> dict[str, Value]:
        """Found the catalogue at the only survivor, since its founders are gone."""
        if len(nodes) != 1:
            raise BadRequest("no survivor is an acceptor of the catalogue; name one node that founds a new catalogue")
        is_known = self._service.knows_catalogue
        if not is_known and await self._participant.others_know():
            raise Conflict("other nodes have a catalogue that this node did not know: nothing must be founded")
        (node,) = nodes
        own = await self._directory.invite(node)
        if self._service.metadata is None or own != self._service.metadata.me:
            answer = await self._peers.ask(node, "metadata_force", [None, [*names]], FORWARD_S)
            return dict(answer) if isinstance(answer, dict) else {}
        metadata, catalogue = self._service.taking_part()
        await catalogue.found_anew(draw_id(self._random))
        status = await self._tell(metadata, catalogue, None)
        lost = "changes that this node had not received are" if is_known else "a catalogue of another founder is"
        return {**status, "lost": f"{lost} lost; nodes that return follow the new catalogue"}

    async def _tell(
        self,
        metadata: Metadata,
        catalogue: Catalogue,
        table: str | None,
        deadline: Deadline | None = None,
        silent: dict[bytes, str] | None = None,
    ) -> dict[str, Value]:
        """Return the status of a register: its state as known here, and which acceptors answer.

        Each wait takes at most half of the time left, to leave time for the next wait. `silent`: nodes that did not
        answer a moment ago; they are not asked again, and new silent nodes are added.
        """
        silent = {} if silent is None else silent
        deadline = Deadline(STATUS_MS / 1000) if deadline is None else deadline
        if table is not None and table not in catalogue.tables():
            with deadline.half(), contextlib.suppress(GossipKVError):  # `table` raises below.
                await metadata.quorum_read(catalogue.register)
        named = None if table is None else catalogue.table(table)
        register = catalogue.register if named is None else named.id
        known_map = metadata.known.get(register)
        if known_map is None:
            with deadline.half(), contextlib.suppress(NotReady, Unavailable):
                hint = None if named is None else Acceptors.of(named.acceptors)
                known_map = await metadata.quorum_read(register, hint)
        if known_map is not None:
            acceptors, config, digest = known_map.acceptors, known_map.config, known_map.digest
        elif named is not None:  # The catalogue has the acceptors of the table's creation.
            acceptors, config, digest = Acceptors.of(named.acceptors), named.config, None
        else:
            raise NotReady("this node does not know the catalogue of tables, and too few of its acceptors answer")
        answers: dict[AcceptorId, str | None] = {}

        async def look_at(acceptor: AcceptorId, timeout_s: float) -> None:
            answers[acceptor] = await self._look_at(metadata, register, acceptor, silent, timeout_s)

        async with trio.open_nursery() as nursery:
            for acceptor in acceptors.everyone:
                nursery.start_soon(look_at, acceptor, deadline.left_s() / 2)

        def side(members: Sequence[AcceptorId]) -> list[Value]:
            return [
                {
                    "node": self._directory.name_of(acceptor.node),
                    "store": f"{acceptor.store:016x}",
                    "answers": answers[acceptor] is None,
                    "why": answers[acceptor],
                }
                for acceptor in members
            ]

        return {
            "table": table,
            "generation": generation_of(config),
            "sequence": sequence_of(config),
            "digest": digest,
            "old": side(acceptors.old),
            "new": side(acceptors.new),
        }

    async def _look_at(
        self, metadata: Metadata, register: bytes, acceptor: AcceptorId, silent: dict[bytes, str], timeout_s: float
    ) -> str | None:
        """Return the reason why an acceptor does not answer; None if it answers."""
        if acceptor.node in silent:
            return silent[acceptor.node]
        request = encode_request(RegisterRequest(RequestKind.READ, register, acceptor, 0))
        try:
            if acceptor == metadata.me:
                answer: Value = await metadata.registers.answer(request)
            else:
                timeout_s = min(LOOK_S, timeout_s)
                answer = await self._peers.ask(acceptor.node, "register", [request], timeout_s)
            reply = decode_reply(answer if isinstance(answer, bytes) else b"")
        except (Unavailable, Unknown) as error:
            return silent.setdefault(acceptor.node, error.message)
        except GossipKVError as error:
            return error.message
        record = reply.record
        if record is not None and 0 < record.conflict >= record.promise.generation:  # A higher force ends the conflict.
            return f"two forced changes have generation {record.conflict}"
        return None if reply.verdict is AcceptorVerdict.OK else reply.verdict.name.lower().replace("_", " ")


def traits(table: TableMeta) -> dict[str, Value]:
    """Return the time key and smear flag of a table with times, and the lifetimes of records and ranges that end."""
    of_times: dict[str, Value] = (
        {} if table.time_key is None else {"time_key": [*table.time_key], "smear": table.smears}
    )
    periods: dict[str, Value] = {"ttl_ms": table.ttl_ms, "retention_ms": table.retention_ms}
    return {**of_times, **{name: period for name, period in periods.items() if period}}


async def _register_of(metadata: Metadata, catalogue: Catalogue, table: str | None) -> bytes:
    """Return the register of a table or of the catalogue; read the catalogue if the table is unknown here."""
    if table is None:
        return catalogue.register
    with contextlib.suppress(UnknownDatabase):
        return catalogue.table(table).id
    await metadata.quorum_read(catalogue.register)
    return catalogue.table(table).id
