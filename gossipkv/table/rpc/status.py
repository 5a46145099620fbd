"""The status of tables for operators: hosts of partitions, lag of other nodes, and refused writes.

A table may have thousands of partitions, so the status has sums by node, and names a limited number of unhealthy
partitions. `partition_map` lists the hosts of each partition.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import GossipKVError
from gossipkv.gossip.member import REACHABLE
from gossipkv.placement.partition import AssignmentState
from gossipkv.placement.spread import lacks
from gossipkv.register.metadata.nodes import placed
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.acks import MAJORITY, slots_needed
from gossipkv.replication.replica.hlc import ms_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gossipkv.errors import Detail
    from gossipkv.placement.spread import SpreadNode
    from gossipkv.register.metadata.partitions import TableMeta
    from gossipkv.register.metadata.tables import NamedNode
    from gossipkv.replication.replica.keys import KeyBounds
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica.spaces import QuarantinedReplica
    from gossipkv.replication.shell import Replication
    from gossipkv.table.participant.node_directory import NodeDirectory
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.records.router import PartitionRoute, Router
    from gossipkv.table.service import TableService

MAX_NAMED: Final = 100  # Unhealthy partitions in one answer.
FEW: Final = 64  # Partitions processed before other tasks run.
MAX_BATCHES: Final = 4096  # Batches of the log searched for the oldest record that a node lacks.
_JUDGED: Final = (
    "error", "unwell", "unwell_not_named", "moving", "missing", "absent", "waits_for", "to_copy", "copied", "transfer",
    "aside", "passed_over", "warning", "smeared", "acceptors",
)  # fmt: skip
_REACHABLE: Final = frozenset(state.name.lower() for state in REACHABLE)


class ReplicaLag(NamedTuple):
    """The lag of a node behind the replicas here, as far as the node has reported."""

    records: int
    seconds: float  # Age of the oldest missing record; a lower bound if that record is no longer in memory.


_NO_LAG: Final = ReplicaLag(0, 0.0)


@final
class _MoveCounts:
    """The moves of a table, and the nodes that they wait for, by the conditions of `controllers.move_step`."""

    def __init__(self, table: TableMeta, nodes: NodesNow) -> None:
        self._slots = table.replication
        self._alive, self._gone, self._removed = nodes.alive, nodes.gone, nodes.removed
        self.states, self.missing, self.fewest = Counter[AssignmentState](), 0, table.replication
        self.comes, self.leaves = Counter[bytes](), Counter[bytes]()  # Partitions, by node.
        self.waits_for: set[bytes] = set()  # Nodes that are down.
        self.copied_from: dict[int, tuple[bytes, bytes]] = {}  # By partition: reporting host, target.

    def look(self, place: PartitionRoute) -> None:
        """Count a partition."""
        self.missing += self._slots - len(place.hosts)
        self.fewest = min(self.fewest, len(place.hosts))
        self.waits_for.update(self._waited_for(place))
        for assignment in place.moving:
            self.states[assignment.state] += 1
            if assignment.state is AssignmentState.LEAVING:
                self.leaves[assignment.node] += 1
            else:
                self.comes[assignment.node] += 1
                if up := [node for node in place.hosts if node in self._alive]:
                    self.copied_from[place.partition] = up[0], assignment.node

    def _waited_for(self, place: PartitionRoute) -> set[bytes]:
        """Return the nodes that must return before a partition can move; never nodes that are lost for good."""
        hosts = {*place.hosts}
        away = hosts - self._gone - {*self._alive}
        waited = away & self._removed  # A removed node may have records of its own to hand over.
        if leaving := {assignment.node for assignment in place.moving if assignment.state is AssignmentState.LEAVING}:
            return waited | away | leaving - self._gone - {*self._alive}
        needed = min(slots_needed(MAJORITY, self._slots), len(hosts))
        return waited | away if place.moving and len(hosts - away) < needed else waited


@final
class NodesNow:
    """The facts about nodes that the statuses of all tables share, looked up once for all of them."""

    def __init__(self, service: TableService, directory: NodeDirectory) -> None:
        """Raises as `TableService.replicating`."""
        replication, members = service.replicating(), directory.members()
        self.states = {member.uuid: member.state for member in members}
        self.alive = {node for node, state in self.states.items() if state in REACHABLE}
        self.refusal = replication.refusal
        self.quarantined = [*replication.replicas.spaces.all_quarantined()]
        self._names = directory.known_names()
        self._service, self._replication = service, replication

    @cached_property
    def named(self) -> Mapping[bytes, NamedNode]:
        """The nodes of tables in the catalogue.  Raises `NotReady`."""
        return self._service.taking_part()[1].nodes.named()

    @cached_property
    def gone(self) -> set[bytes]:
        """The nodes that are lost for good."""
        return {uuid for uuid, node in self.named.items() if node.weight is None}

    @cached_property
    def removed(self) -> set[bytes]:
        return {uuid for uuid, node in self.named.items() if node.weight == 0}

    @cached_property
    def placed(self) -> list[SpreadNode]:
        """The nodes that may hold partitions."""
        return placed(self.named)

    @cached_property
    def lags(self) -> dict[bytes, dict[bytes, ReplicaLag]]:
        """The lag of each node behind the replicas here, by table."""
        return {node: _lags(self._replication, node, self.alive) for node in self._replication.replicas.peers}

    def name_of(self, node: bytes) -> str:
        """Return the name of a node, or the digits of its uuid if the name is unknown."""
        return self._names.get(node) or node.hex()

    def by_name(self, nodes: Iterable[bytes]) -> list[tuple[str, bytes]]:
        """Return nodes with their names, in the order of the names."""
        return sorted([(self._names.get(node) or node.hex(), node) for node in nodes])


@final
class TableReporter:
    """Reports the status of tables and of the replicas on this node."""

    def __init__(self, participant: MetadataParticipant, routing: Router, writes_failed: Mapping[str, int]) -> None:
        """`writes_failed`: clients' failed writes, by the code of the error."""
        self._service, self._directory = participant.service, participant.directory
        self._routing, self._writes_failed = routing, writes_failed

    def to_map(self) -> dict[str, Detail]:
        """Return the values about local replicas, lag and waiting requests for `info`."""
        replication = self._service.replicating()
        replicas = replication.replicas.by_partition.values()
        records: dict[str, dict[str, Detail]] = {name: {} for name in self._routing.names()}
        seconds: dict[str, dict[str, Detail]] = {name: {} for name in records}
        names = {table: name for name, table in self._routing.names().items()}
        nodes = self.nodes()
        for node, lags in nodes.lags.items():
            for table, lag in lags.items():
                if (name := names.get(table)) is not None:  # The table may have been dropped a moment ago.
                    records[name][nodes.name_of(node)] = lag.records
                    seconds[name][nodes.name_of(node)] = lag.seconds
        return {
            "copies": len(replicas),
            "copies_aside": self.copies_aside(),
            "refusal": replication.refusal,
            "lag_records": {**records},
            "lag_s": {**seconds},
            **self._placed(nodes),
            "tombstone_holders": len({node for nodes in replication.collector.held_back.values() for node in nodes}),
            "writes_failed": {**self._writes_failed},
            "waiting": replication.waiting.waiting,
            "waiting_bytes": replication.waiting.bytes,
            "waiting_limit": replication.waiting.most_bytes,
            **({} if self._service.smear_buffer is None else self._service.smear_buffer.to_map()),
        }

    def _placed(self, nodes: NodesNow) -> dict[str, Detail]:
        """Return numbers of partitions, replicas and acceptors by table, and the acceptors of the catalogue."""
        metadata, catalogue = self._service.taking_part()

        def acceptors(register: bytes) -> Counter[str]:
            known_map = metadata.known.get(register)
            voters = () if known_map is None else known_map.acceptors.new
            alive = [acceptor for acceptor in voters if acceptor.node in nodes.alive]
            return Counter(acceptors=len(voters), acceptors_alive=len(alive))

        placed: dict[str, Detail] = {"catalogue": {**acceptors(catalogue.register)}}
        by_table: dict[str, Detail] = {}
        for name, table in self._routing.names().items():
            with contextlib.suppress(GossipKVError):  # Its map is not known here, or has ended.
                route = self._routing.route(name)
                slots, counts = route.table.replication, acceptors(table)
                for hosts, partitions in Counter(place.hosts for place in route.places()).items():
                    alive = len(nodes.alive.intersection(hosts))
                    counts["partitions"] += partitions
                    counts["without_majority"] += partitions * (alive < slots_needed(MAJORITY, slots))
                    counts["missing_replicas"] += partitions * max(0, slots - alive)
                by_table[name] = {**counts}
        return {**placed, "by_table": by_table}

    def copies_aside(self) -> int:
        """Return the number of quarantined replicas on this node, with those that take no writes."""
        replicas = self._service.replicating().replicas
        barred = [replica for replica in replicas.by_partition.values() if replica.barred is not None]
        return len(barred) + sum(map(len, replicas.spaces.quarantined.values()))

    def nodes(self) -> NodesNow:
        """Look at the nodes, for the statuses of several tables.  Raises `NotReady`."""
        return NodesNow(self._service, self._directory)

    async def status(self, name: str, nodes: NodesNow | None = None) -> dict[str, Detail]:
        """Return the status of a table; `nodes`: those looked at for other tables.

        Raises:
            UnknownDatabase: there is no such table.
            NotReady: its map is not known here yet.
        """
        route, replication = self._routing.route(name), self._service.replicating()
        replicas, now, table = replication.replicas, nodes or self.nodes(), route.table
        hosts, partitions, not_named = list[bytes](), 0, 0
        moves = _MoveCounts(table, now)
        unwell: list[Detail] = []
        for partitions, place in enumerate(route.places(), 1):
            hosts += place.hosts
            is_whole = len(place.hosts) == table.replication and not place.moving
            is_calm = is_whole and now.alive.issuperset(place.hosts)  # Only a replica here can have a problem.
            if not is_calm:
                moves.look(place)
            if not is_calm or (table.id, place.partition) in replicas.by_partition:
                why = self._why_unwell(place, replication, table, now.alive)
                if why and len(unwell) < MAX_NAMED:
                    unwell.append({"partition": str(place.partition), "why": why})
                elif why:
                    not_named += 1
            if partitions % FEW == 0:
                await trio.lowlevel.checkpoint()
        rows: list[Detail] = []
        held = Counter(hosts)
        for node_name, node in now.by_name({*held, *moves.comes, *moves.leaves}):
            lag = now.lags.get(node, {}).get(table.id, _NO_LAG)
            state = now.states[node].name.lower() if node in now.states else "gone"
            row: dict[str, Detail] = {"node": node_name, "state": state, "partitions": held[node]}
            row |= {"coming": moves.comes[node], "leaving": moves.leaves[node]}
            rows.append({**row, "lag_records": lag.records, "lag_s": lag.seconds})
        refusal = f"this node takes no writes: {now.refusal}"
        passed_over_s, smears = self._service.controllers().rebalancer.passed_over_s(), self._service.smear_buffer
        return {
            **({"error": refusal} if now.refusal is not None and replicas.me in held else {}),
            "kind": table.kind,
            "replication": table.replication,
            "partition_count": partitions,
            "nodes": rows,
            "moving": {state.name: count for state, count in sorted(moves.states.items())},
            "missing": moves.missing,
            "fewest": moves.fewest,
            "absent": self._absent(table, now) if moves.missing else [],
            "waits_for": [*sorted(map(now.name_of, moves.waits_for))],
            **self._progress(table, moves, replication),
            "passed_over": {now.name_of(node): int(s) for node, s in passed_over_s.items()},
            "aside": self._quarantined(table, replication, now.quarantined),
            "warning": self._warning(table, now),
            "acceptors": self._acceptors(table, now),
            "smeared": None if smears is None else smears.backlog_of(table.id),
            "loading": len([replica for replica in replicas.loader.loads if replica.identity.table == table.id]),
            "tombstones_held_by": [*sorted(self._holders_back(replication, table.id))],
            "unwell": unwell,
            "unwell_not_named": not_named,
        }

    async def condition(self, name: str, nodes: NodesNow | None = None) -> dict[str, Detail]:
        """Return the condition of a table for the verdict: its kind, and its problems.

        Raises:
            UnknownDatabase: there is no such table.
            NotReady: its map is not known here yet.
        """
        status = await self.status(name, nodes)
        rows = status["nodes"]
        assert isinstance(rows, list)
        lags: dict[str, Detail] = {}
        away: dict[str, Detail] = {}
        for node in rows:
            assert isinstance(node, dict)
            if node["state"] not in _REACHABLE:  # It lacks every write since its last report.
                away |= {str(node["node"]): {"state": node["state"], "partitions": node["partitions"]}}
            elif node["lag_records"]:
                lags |= {str(node["node"]): {"records": node["lag_records"], "seconds": node["lag_s"]}}
        more = {key: status.get(key) for key in _JUDGED} | {"lags": lags, "away": away}
        if away:
            more["partition_count"] = status["partition_count"]
        if more["missing"]:
            more |= {"fewest": status["fewest"], "replication": status["replication"]}
        return {"kind": status["kind"], **{key: value for key, value in more.items() if value}}

    def _progress(self, table: TableMeta, moves: _MoveCounts, replication: Replication) -> dict[str, Detail]:
        """Return the bytes that targets must copy from here, the bytes copied to here, and the limit of the rate."""
        replicas = replication.replicas
        to_copy, copied = Counter[bytes](), 0
        for partition, (reporter, target) in moves.copied_from.items():
            replica = replicas.by_partition.get((table.id, partition))
            if replica is not None and reporter == replicas.me:
                to_copy[target] += _size(replication, replica.space, replica.bounds)
            elif replica is not None and target == replicas.me:
                load = replicas.loader.loads.get(replica)
                has_begun = replica.joining is None or replica.joining.is_loaded
                space = load.space if load is not None else replica.space if has_begun else None
                copied += 0 if space is None else _size(replication, space, replica.bounds)
        rate = replicas.loader.pace.rate
        return {
            "to_copy": {self._directory.name_of(node): count for node, count in to_copy.items()},
            "copied": copied,
            "transfer": int(rate) if moves.comes[replicas.me] and isfinite(rate) else None,
        }

    @staticmethod
    def _quarantined(
        table: TableMeta, replication: Replication, quarantined: Sequence[QuarantinedReplica]
    ) -> dict[str, Detail] | None:
        """Return the number and bytes of a table's replicas quarantined here; None if there are none."""
        here = [replica for replica in quarantined if replica.identity.table == table.id]
        sizes = [_size(replication, replica.space, replica.identity.bounds) for replica in here]
        return {"copies": len(sizes), "bytes": sum(sizes)} if sizes else None

    @staticmethod
    def _warning(table: TableMeta, now: NodesNow) -> str | None:
        """Return a warning if there are fewer isolation groups than replicas."""
        return lacks(now.placed, table.replication, [*map(set, table.groups)]) or None if now.placed else None

    def _absent(self, table: TableMeta, now: NodesNow) -> list[Detail]:
        """Return the members without which a table has fewer live nodes than replicas."""
        is_enough = len(now.alive.intersection(node.id for node in now.placed)) >= table.replication
        return [] if is_enough else [*sorted(self._directory.absent().values())]

    def _acceptors(self, table: TableMeta, now: NodesNow) -> list[Detail]:
        """Return the nodes with acceptors of the table's map, unless all of them are alive."""
        metadata, _ = self._service.taking_part()
        nodes = {acceptor.node for acceptor in metadata.known[table.id].acceptors.new}
        return [] if nodes <= now.alive else [*sorted(map(now.name_of, nodes))]

    def _holders_back(self, replication: Replication, table: bytes) -> set[str]:
        """Return the nodes for which tombstones of a table are kept."""
        held_back = replication.collector.held_back.items()
        return {
            self._directory.name_of(node)
            for replica, nodes in held_back
            if replica.identity.table == table
            for node in nodes
        }

    def _why_unwell(
        self, place: PartitionRoute, replication: Replication, table: TableMeta, alive: set[bytes]
    ) -> str | None:
        """Return the problem of a partition in words; None if it has none."""
        replicas = replication.replicas
        replica, up = replicas.by_partition.get((table.id, place.partition)), len(alive.intersection(place.hosts))
        if replica is not None:
            name_of = self._directory.name_of
            why = replicas.refusal(replica)
            if why is not None:
                why = f"takes no writes: {why}"
            elif differing := replication.digests.differ.get(replica):
                names = ", ".join(sorted(map(name_of, differing)))
                why = f"has other records than {names}, although both have all writes"
            elif replica in replicas.loader.log_too_small:
                why = "bulk-loads repeatedly: `table_log` is too small for the writes meanwhile"
            if why is not None:
                return f"its replica at {name_of(replicas.me)} {why}"
        if not up:
            return "none of its nodes is alive, so it cannot be read or written"
        if replica is not None and replica.originates:
            up = replicas.acks[replica].confirming(replicas.confirms)
        needed = slots_needed(MAJORITY, table.replication)
        if up < needed:
            return f"{up} of {table.replication} replicas can confirm a write, but a majority is {needed}"
        return None


def _size(replication: Replication, space: int, bounds: KeyBounds) -> int:
    """Return the approximate bytes of a space within bounds; 0 if the space does not exist yet, or is damaged."""
    with contextlib.suppress(GossipKVError, ValueError):
        return replication.size_bytes(space, bounds)
    return 0


def _lags(replication: Replication, node: bytes, alive: Collection[bytes]) -> dict[bytes, ReplicaLag]:
    """Return the lag of a node behind the replicas here, by table; targets of moves have none until AVAILABLE.

    A live node without a connection to this node may get all records from other nodes, so no lag is reported for it.
    """
    if node in alive and not replication.replicas.reaches(node):
        return {}
    sender, tail = replication.replicas.peers[node].sender, replication.replicas.tail
    lacks: set[Replica] = set()
    records = Counter[bytes]()
    oldest = dict[bytes, int]()  # Latest possible time, until the record is found.
    for replica, status in sender.statuses.items():
        count = 0 if status.clock == replica.synced or not status.available else sender.lag(replica)
        table = replica.partition[0]
        records[table] += count
        if count:
            lacks.add(replica)
            oldest[table] = min(replica.time, oldest.get(table, replica.time))
    if not lacks:
        return dict.fromkeys(records, _NO_LAG)
    not_found, position = {*oldest}, max(sender.place, tail.first)
    for _ in range(MAX_BATCHES):
        batch = tail.next(position) if not_found else ()
        if not batch:
            break
        position = batch[0].position
        for entry in batch:
            table = entry.replica.partition[0]
            is_lacking = entry.replica in lacks and not clock.covers(sender.statuses[entry.replica].clock, entry.after)
            if table in not_found and entry.records and (is_lacking or sender.place < tail.first):
                oldest[table] = min(oldest[table], record.decode(entry.records[0][1]).time)
                not_found.remove(table)
    now_ms = replication.now_ms()
    return {
        table: ReplicaLag(count, max(0, now_ms - ms_of(oldest[table])) / 1000 if count else 0.0)
        for table, count in records.items()
    }
