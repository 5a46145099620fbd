"""Verification, on request, that all replicas of a partition have the same live records.

    verify_table    [table, {start, timeout_ms}]            compares the first partition from `start` on
    table_digest    [uuid, table id, partition, timeout, at_ms]   asks a host for clock, sum and number of live records

Two replicas can be compared only while their clocks are equal, so a partition with writes is compared again until the
timeout. Records that expire before the timeout, `at_ms`, are left out at all hosts. Nothing is repaired: a digest does
not tell which of two replicas is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import GossipKVError, NotReady, NotServed, Overloaded, ProtocolError, Unavailable, Unknown
from gossipkv.replication.maintenance.digests import MAX_DIGEST, DigestPass
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.replica import ReplicaDigest
from gossipkv.settings.tables import DECISION_MS, MAX_DECISION_MS
from gossipkv.wire.results import DeferredResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.records.router import PartitionRoute, Router
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value

MAX_PASSES: Final = 4  # Concurrent digests on a node: each reads a whole partition.
RETRY_S: Final = 0.1
HOST_PART: Final = 0.8  # A host gets this part of the time left for its answer.
MAX_ID: Final = (1 << 64) - 1
EQUAL: Final = "equal"
DIFFERENT: Final = "different"
NOT_COMPARED: Final = "not compared"


class PartitionVerdict(NamedTuple):
    """The result of a comparison of replicas, and the reason for a result other than `equal`."""

    word: str
    why: str | None = None


@final
class Verifier:
    """Compares replicas, and answers other nodes with digests of the local ones."""

    def __init__(self, participant: MetadataParticipant, routing: Router) -> None:
        self._service, self._directory, self._peers = participant.service, participant.directory, participant.peers
        self._routing = routing
        self._passes = 0

    def verify(self, arguments: Arguments) -> DeferredResult:
        """`verify_table [table, {start, timeout_ms}]`: compare the replicas of the first partition from a key on."""
        name = arguments.text("table")
        options = arguments.options("start", "timeout_ms")
        start = options.blob("start") or b""
        timeout_ms = options.number("timeout_ms", 1, MAX_DECISION_MS) or DECISION_MS
        arguments.end()

        async def compare() -> Value:
            route = self._routing.route(name)
            places = (place for place in route.places() if place.first >= start)
            place = next(places, None)
            if place is None:
                return None
            found = await self._compare(route.table.id, place, trio.current_time() + timeout_ms / 1000)
            after = next(places, None)
            verdict = judge(found)
            replicas: list[Value] = [_row(name, found[name]) for name in sorted(found)]
            return {
                "partition": f"{place.partition:016x}",
                "verdict": verdict.word,
                "why": verdict.why,
                "copies": replicas,
                "next": None if after is None else after.first,
            }

        return DeferredResult(compare, may_end=True)

    def digest(self, arguments: Arguments) -> DeferredResult:
        """`table_digest [uuid, table id, partition, timeout, at_ms]`: clock, sum and number of live records."""
        arguments.blob("node")
        table, partition = arguments.blob("table"), arguments.whole("partition", MAX_ID)
        timeout_ms, at_ms = arguments.whole("timeout", MAX_DECISION_MS), arguments.whole("time", MAX_ID)
        arguments.end()

        async def take() -> Value:
            return [*(await self._take(table, partition, trio.current_time() + timeout_ms / 1000, at_ms))[:3]]

        return DeferredResult(take, may_end=True)

    async def _take(self, table: bytes, partition: int, until: float, at_ms: int) -> ReplicaDigest:
        """Return the digest of a local replica at one clock.

        Raises:
            NotServed: this node has no replica of the partition.
            NotReady: writes interrupted every digest until the timeout.
            Overloaded: MAX_PASSES digests are under way.
        """
        replication = self._service.replicating()
        if self._passes >= MAX_PASSES:
            raise Overloaded(f"this node already verifies {MAX_PASSES} partitions; try again later")
        self._passes += 1
        try:
            while True:
                replica = replication.replicas.by_partition.get((table, partition))
                if replica is None:
                    raise NotServed("the node does not hold the partition", {"partition": partition})
                way = DigestPass.of(replica, at_ms)
                while way.is_unchanged(replication.replicas):
                    if (digest := way.read(replication)) is not None:
                        return digest
                    await trio.lowlevel.checkpoint()
                if trio.current_time() >= until:
                    raise NotReady("the partition is being written to; no digest was possible in time")
                await trio.sleep(RETRY_S)
        finally:
            self._passes -= 1

    async def _compare(
        self, table: bytes, place: PartitionRoute, until: float
    ) -> dict[str, ReplicaDigest | GossipKVError]:
        """Return each host's digest or error by name; repeat until comparable, a host is silent, or `until`."""
        at_ms = self._service.replicating().replicas.skew.expiry_ms() + int(1000 * (until - trio.current_time()))
        while True:
            found: dict[str, ReplicaDigest | GossipKVError] = {}
            async with trio.open_nursery() as nursery:
                for node in place.hosts:
                    nursery.start_soon(self._ask, node, (table, place.partition), until, at_ms, found)
            is_silent = any(isinstance(result, Unavailable | Unknown) for result in found.values())
            if is_silent or judge(found).word != NOT_COMPARED or trio.current_time() + RETRY_S >= until:
                return found
            await trio.sleep(RETRY_S)

    async def _ask(
        self,
        node: bytes,
        partition: tuple[bytes, int],
        until: float,
        at_ms: int,
        found: dict[str, ReplicaDigest | GossipKVError],
    ) -> None:
        name = self._directory.name_of(node)
        left_s = max(RETRY_S, until - trio.current_time())
        host_s = left_s * HOST_PART
        try:
            me = self._service.replicating().replicas.me
            if node == me:
                found[name] = await self._take(*partition, trio.current_time() + host_s, at_ms)
            elif not self._peers.is_up(node):
                raise Unavailable(f"{name} is down")
            else:
                params: list[Value] = [me, *partition, int(host_s * 1000), at_ms]
                found[name] = _read(await self._peers.ask(node, "table_digest", params, left_s), name)
        except GossipKVError as error:
            found[name] = error


def judge(found: Mapping[str, ReplicaDigest | GossipKVError]) -> PartitionVerdict:
    """Compare the digests that the hosts gave, by name."""
    digests = {name: result for name, result in found.items() if isinstance(result, ReplicaDigest)}
    names = sorted(digests)
    behind = []
    for number, name in enumerate(names):
        for other in names[number + 1 :]:
            if clock.compare(digests[name].clock, digests[other].clock) != clock.EQUAL:
                behind.append(f"{name} and {other} do not have the same writes yet")
            elif digests[name][1:3] != digests[other][1:3]:
                return PartitionVerdict(DIFFERENT, f"{name} and {other} have the same writes, but different records")
    silent = [f"{name}: {error.message}" for name, error in sorted(found.items()) if isinstance(error, GossipKVError)]
    if silent or behind:
        return PartitionVerdict(NOT_COMPARED, "; ".join(silent or behind))
    if len(digests) < 2:  # noqa: PLR2004  # A comparison takes two replicas.
        return PartitionVerdict(NOT_COMPARED, "the partition has one replica")
    return PartitionVerdict(EQUAL)


def _read(answer: Value, name: str) -> ReplicaDigest:
    match answer:
        case [bytes(at), int(total), int(records)] if 0 <= total < MAX_DIGEST and 0 <= records <= MAX_ID:
            clock.check(at)
            return ReplicaDigest(at, total, records)
    raise ProtocolError(f"the answer of {name} is not a digest")


def _row(name: str, result: ReplicaDigest | GossipKVError) -> Value:
    if isinstance(result, GossipKVError):
        return {"node": name, "error": result.message}
    return {"node": name, "records": result.records, "digest": f"{result.sum:016x}"}
