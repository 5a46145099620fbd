"""The methods by which operators add, remove and weigh nodes of tables, and preview the moves that follow.

Each method changes the wanted placement by one idempotent operation. Nodes and weights are kept in the catalogue, the
groups of a reshard in the table's own map. The rebalancer makes the moves; no method here waits for them.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import BadRequest, Conflict, GossipKVError, NotReady, Unavailable, UnknownDatabase
from gossipkv.placement.partition import least_of_group
from gossipkv.placement.spread import lacks, regroup
from gossipkv.register.configuration import Acceptors
from gossipkv.register.metadata.deadline import Deadline
from gossipkv.register.metadata.nodes import placed
from gossipkv.register.metadata.partitions import HASH, RANGE, decode_table
from gossipkv.register.metadata.tables import NamedNode
from gossipkv.table.controllers.rebalancer import grouped, planned
from gossipkv.table.rpc import requests as table_requests
from gossipkv.table.rpc.transact import LATELY_S, TransactMethods
from gossipkv.wire.results import DeferredResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from random import Random

    from gossipkv.placement.spread import SpreadNode
    from gossipkv.register.metadata.known import MapView
    from gossipkv.register.metadata.partitions import TableMeta
    from gossipkv.table.controllers.rebalancer import TablePlan
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.rpc.requests import NodeArguments as _Wanted
    from gossipkv.table.rpc.transact import Change
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value

    Named = Mapping[bytes, NamedNode]
    Argued = tuple[str, tuple[object, ...]]  # Name and argument of an operation.
    _Decide = Callable[[_Wanted, Deadline, Named], Awaitable[Argued]]

LEAVE_S: Final = 10.0  # Other nodes take over the registers of a removed node within seconds.
PLAN_S: Final = 10.0  # Timeout of a request for another node's plan.
MAX_TOLD: Final = 4096  # Moves of one table in one answer.


@final
class NodeAdminMethods:
    """The methods about nodes of tables."""

    def __init__(self, participant: MetadataParticipant, random: Random) -> None:
        self._service, self._directory, self._peers = participant.service, participant.directory, participant.peers
        self._transactions = TransactMethods(participant, random)
        decisions: dict[bytes, tuple[Callable[[Arguments], _Wanted], _Decide]] = {
            b"add_node": (table_requests.add_node, self._add),
            b"remove_node": (table_requests.remove_node, self._remove),
            b"replace_node": (table_requests.replace_node, self._replace),
            b"set_weight": (table_requests.set_weight, self._weigh),
        }
        self.methods: dict[bytes, Callable[[Arguments], DeferredResult]] = {
            **{name: partial(self._change, *how) for name, how in decisions.items()},
            b"reshard": self._reshard,
            b"plan": self._plan,
            b"placement_nodes": self._list,
        }

    # -- nodes ---------------------------------------------------------------------------------------------------------

    async def _add(self, wanted: _Wanted, deadline: Deadline, named: Named) -> Argued:
        node, described = await self._newcomer(wanted, deadline)
        return "set_node", (node, *_record_of(wanted, described, named.get(node)), None, 0)

    async def _replace(self, wanted: _Wanted, deadline: Deadline, named: Named) -> Argued:
        node, described = await self._newcomer(wanted, deadline)
        assert wanted.instead_of is not None
        old = self._transactions.named(named, wanted.instead_of, but=node)
        self._check_gone(old, is_gone=wanted.is_gone)
        present = named.get(node)
        if present is not None and present.weight:  # The new node keeps its own place.
            self._check_groups(old, named)
        else:  # By default, the new node takes the old node's weight.
            present = named[old]._replace(isolation_group=described.isolation_group)
        return "set_node", (
            node,
            *_record_of(wanted, described, present),
            (old, wanted.is_gone),
            self._max_replication(),
        )

    async def _remove(self, wanted: _Wanted, _deadline: Deadline, named: Named) -> Argued:
        node = self._transactions.named(named, wanted.node)
        self._check_gone(node, is_gone=wanted.is_gone)
        self._check_groups(node, named)
        return "remove_node", (node, wanted.is_gone, self._max_replication())

    async def _weigh(self, wanted: _Wanted, _deadline: Deadline, named: Named) -> Argued:
        node = self._transactions.named(named, wanted.node)
        if not named[node].weight:
            raise BadRequest(f"{wanted.node} was removed: add the node with `gossipkv node add`")
        return "set_node", (node, *named[node]._replace(weight=wanted.weight), None, 0)

    def _list(self, arguments: Arguments) -> DeferredResult:
        arguments.end()

        async def tell() -> Value:
            _, catalogue = await self._transactions.lately()
            return await self._nodes(catalogue.nodes.named())

        return DeferredResult(tell, may_end=True)

    def _change(self, read: Callable[[Arguments], _Wanted], decide: _Decide, arguments: Arguments) -> DeferredResult:
        """Apply one operation to the catalogue; decide again if another change comes first."""
        wanted = read(arguments)

        async def change() -> Value:
            deadline = Deadline(wanted.timeout_ms / 1000)
            metadata, catalogue = await self._transactions.informed(deadline)
            while True:
                config = await self._transactions.read(metadata, catalogue, deadline)
                before = catalogue.nodes.named()
                name, argument = await decide(wanted, deadline, before)
                asked = config, name, 1, argument
                if await self._transactions.is_done(catalogue, catalogue.register, asked, deadline):
                    break
            with deadline.rest(), contextlib.suppress(GossipKVError):  # The change is done, even if this read fails.
                await metadata.quorum_read(catalogue.register)
            after, node = catalogue.nodes.named(), argument[0]
            assert isinstance(node, bytes)
            leavers = {
                uuid for uuid in (node, _replaced(argument)) if uuid and uuid in after and not after[uuid].weight
            }
            decides_on: list[Value] = [*await self._decides_on(leavers, deadline)]
            answer: dict[str, Value] = {"node": self._directory.name_of(node), "changed": before != after}
            return {**answer, "decides_on": decides_on, **await self._nodes(after)}

        return DeferredResult(change)

    async def _decides_on(self, leavers: set[bytes], deadline: Deadline) -> list[str]:
        """Return the registers of which removed nodes are acceptors, after a wait until others take their places."""
        metadata, catalogue = self._service.taking_part()
        names = {catalogue.register: "the catalogue"} | {table.id: name for name, table in catalogue.tables().items()}
        left: list[str] = []
        with trio.move_on_after(min(LEAVE_S, deadline.left_s() / 2)):
            while leavers:
                known = {register: known_map.acceptors.new for register, known_map in metadata.known.items()}
                left = [
                    name
                    for register, name in names.items()
                    if any(acceptor.node in leavers for acceptor in known.get(register, ()))
                ]
                if not left:
                    break
                await trio.sleep(LEAVE_S / 100)
        return sorted(left)

    async def _nodes(self, named: Named) -> dict[str, Value]:
        """Return all nodes of tables, and the removed ones that are down and still hold partitions."""
        alive, names = self._directory.alive(), self._directory.names()
        down = [uuid for uuid, node in named.items() if node.weight == 0 and uuid not in alive]
        held = await self._held() if down else set()
        return {
            "nodes": [
                {
                    "node": names.get(uuid) or node.name,
                    "uuid": uuid.hex(),
                    "member": uuid in names,
                    "isolation_group": node.isolation_group,
                    "weight": node.weight,
                    "alive": uuid in alive,
                }
                for uuid, node in named.items()
            ],
            "waits_for": [names.get(uuid) or named[uuid].name for uuid in down if held is None or uuid in held],
        }

    async def _held(self) -> set[bytes] | None:
        """Return the nodes that hold a partition of any table; None if a map is not known here."""
        _, catalogue = self._service.taking_part()
        try:
            return await catalogue.nodes.holders()
        except NotReady:
            return None

    async def _newcomer(self, wanted: _Wanted, deadline: Deadline) -> tuple[bytes, NamedNode]:
        """Invite a member; return its uuid, and its description of itself.  Raises NotReady, Unavailable."""
        node = self._directory.uuid_of(wanted.node)
        if node not in self._directory.alive():
            raise Unavailable(f"{wanted.node} cannot hold partitions: it is not a live member of this cluster")
        with deadline.step(f"asking {wanted.node} to take part"):
            await self._directory.invite(node)
            return node, await self._transactions.describe(node)

    def _check_gone(self, node: bytes, *, is_gone: bool) -> None:
        """Raise Conflict if a live node is declared lost for good."""
        if is_gone and node in self._directory.alive():
            raise Conflict(
                f"{self._directory.name_of(node)} is alive, and --force is for nodes that are lost for good: "
                "records that only it has would be lost. Stop the node first, or omit --force"
            )

    def _check_groups(self, node: bytes, named: Named) -> None:
        """Raise Conflict if a group of a table would have too few nodes without this node.  Raises NotReady."""
        if not named[node].weight:  # No group counts a removed node.
            return
        for table in self._tables():
            least = least_of_group(table.replication)
            if any(node in group and len(group) <= least for group in grouped(table, placed(named))):
                raise Conflict(
                    f"the table {table.name} needs {least} nodes in each group, and the group of "
                    f"{self._directory.name_of(node)} has no more: replace the node, or reshard to fewer groups first"
                )

    def _max_replication(self) -> int:
        """Return the largest replication of a table: so many nodes must stay.  Raises NotReady: a map is missing."""
        return max((table.replication for table in self._tables()), default=1)

    def _tables(self) -> Iterator[TableMeta]:
        """Yield the tables that are not dropped, with their groups as known here.  Raises NotReady."""
        metadata, catalogue = self._service.taking_part()
        for table in catalogue.tables().values():
            with contextlib.suppress(UnknownDatabase):  # The table is dropped, but the catalogue still names it.
                yield decode_table(metadata.view(table.id).meta)

    # -- tables --------------------------------------------------------------------------------------------------------

    def _reshard(self, arguments: Arguments) -> DeferredResult:
        wanted = table_requests.reshard(arguments)

        async def argued(tree: MapView, nodes: list[SpreadNode]) -> Change:
            table = decode_table(tree.meta)
            if table.kind != HASH:
                raise BadRequest(f"{wanted.table} has ranges: only shards of hash tables have groups")
            try:
                groups = regroup(nodes, wanted.groups, table.replication, table.groups) if wanted.groups else ()
            except ValueError as error:
                raise BadRequest(f"{wanted.table} cannot have {wanted.groups} groups: {error}") from error
            names: list[Value] = [[self._directory.name_of(node) for node in group] for group in groups]
            answer: dict[str, Value] = {"table": wanted.table, "changed": groups != table.groups, "groups": names}
            return ("set_groups", 1, tuple(b"".join(group) for group in groups)), answer

        async def reshard() -> Value:
            return await self._transactions.change_map(wanted.table, argued, Deadline(wanted.timeout_ms / 1000))

        return DeferredResult(reshard)

    def _plan(self, arguments: Arguments) -> DeferredResult:
        name, is_local = arguments.text_or_nil("table"), arguments.options("local").flag("local")

        async def plan() -> Value:
            metadata, catalogue = await self._transactions.lately()
            nodes = placed(catalogue.nodes.named())
            plans: list[Value] = []
            for table_name in [*catalogue.tables()] if name is None else [name]:
                table = catalogue.table(table_name)
                has_mover = table.kind != HASH and not is_local
                mover = self._service.controllers().rebalancer.mover_of(table.id) if has_mover else b""
                of_mover = await self._asked_of(mover, table_name) if mover not in {b"", metadata.me.node} else None
                with trio.move_on_after(LATELY_S), contextlib.suppress(GossipKVError):  # To see running moves.
                    await metadata.quorum_read(table.id, Acceptors.of(table.acceptors))  # A new node has no map yet.
                plans.append(of_mover or await self._planned(table_name, metadata.view(table.id), nodes))
            return plans

        return DeferredResult(plan, may_end=True)

    async def _asked_of(self, mover: bytes, name: str) -> Value:
        """Return the plan of a range table's mover, which knows recent moves; None if it does not answer."""
        with contextlib.suppress(GossipKVError):
            match await self._peers.ask(mover, "plan", [name, {"local": True}], PLAN_S):
                case [dict(plan)]:
                    return plan
        return None

    async def _planned(self, name: str, tree: MapView, nodes: Sequence[SpreadNode]) -> Value:
        table, controllers = decode_table(tree.meta), self._service.controllers()
        measures = (await controllers.load_stats.of(table.id, self._directory.alive())).measures
        situation = controllers.rebalancer.known(table.id, nodes, measures)
        made = await self._peers.beside(partial(planned, tree, nodes, situation))
        sizes = {id_: measure.size_bytes for id_, measure in measures.items()}
        resting = situation.lately.resting(situation.now) if table.kind == RANGE else []
        keys = "partition", "slot", "for_s"
        rows: list[Value] = [dict(zip(keys, pause, strict=True)) for pause in resting[:MAX_TOLD]]
        return {**self._tell(name, made, nodes, sizes), "resting": rows}

    def _tell(
        self, name: str, plan: TablePlan, nodes: Sequence[SpreadNode], sizes: Mapping[int, int]
    ) -> dict[str, Value]:
        name_of, moves = self._directory.name_of, plan.moves()
        why = {(plan.partitions[move.partition].id, move.slot): move.why for move in plan.ranges.moves}
        rows: list[Value] = []
        for partition, slot, source, target in moves[:MAX_TOLD]:
            from_ = None if source is None else name_of(source)
            rows.append({
                "partition": partition.id,
                "slot": slot,
                "from": from_,
                "to": name_of(target),
                "bytes": sizes.get(partition.id),
                "why": why.get((partition.id, slot), "").replace("{source}", str(from_)) or None,
            })  # fmt: skip
        splits: list[Value] = [
            {"partition": plan.partitions[split.partition].id, "why": split.why} for split in plan.ranges.splits
        ]
        return {
            "table": name,
            "moves": rows,
            "moves_count": len(moves),
            "bytes": sum(sizes.get(partition.id, 0) for partition, *_ in moves),
            "unknown": sum(partition.id not in sizes for partition, *_ in moves),
            "splits": splits[:MAX_TOLD],
            "splits_count": len(splits),
            # An empty catalogue lacks no nodes yet.
            "warning": (nodes and lacks(nodes, plan.table.replication, [*map(set, plan.groups)])) or None,
        }


def _replaced(argument: tuple[object, ...]) -> bytes | None:
    """Return the node that the argument of `set_node` replaces; None: it replaces none."""
    match argument:
        case [*_, (bytes(node), _), _]:
            return node
    return None


def _record_of(wanted: _Wanted, described: NamedNode, present: NamedNode | None) -> NamedNode:
    """Return the record of a new node: the request's values, else the catalogue's, else the node's own."""
    base = present if present is not None and present.weight else described
    return NamedNode(
        described.name,
        base.isolation_group if wanted.isolation_group is None else wanted.isolation_group,
        base.weight if wanted.weight is None else wanted.weight,
    )
