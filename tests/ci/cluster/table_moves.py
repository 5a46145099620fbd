"""A table that moves while it is written and read: clients during the moves, and checks of its nodes' content."""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_right
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from gossipkv.client import blocking
from gossipkv.keyspace.partitioner import TABLE_HASHES
from gossipkv.launcher import Cluster
from tests.ci.cluster.table_nodes import Nodes, until
from tests.ci.cluster.table_records import DONE, TABLE, TIMEOUT_MS, Load, judge, trouble
from tests.ci.cluster.table_sessions import Hopping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

T = TypeVar("T")

OLD = 3_000  # Records that exist before any move.
VALUE_BYTES = 100
PUT_AT_ONCE = 500
MAX_OF_MAP = 10_000


class Death(NamedTuple):
    """The time of a node's death, and the time at which all others knew of it."""

    killed_s: float
    known_s: float


class Failed(NamedTuple):
    began_s: float
    ended_s: float
    error: str

    def is_amid(self, death: Death) -> bool:
        """True if the request was under way while a node was dead and unknown as dead to some node."""
        return self.began_s < death.known_s and self.ended_s > death.killed_s


class Held(NamedTuple):
    partition: int
    slot: int
    node: str
    state: str


def held(nodes: Nodes, index: int) -> list[Held]:
    """Return all assignments of the table, as a node knows them."""
    told = nodes.ask(index, "partition_map", TABLE, {"limit": MAX_OF_MAP})
    assert told["next"] is None
    return [
        Held(number, one["slot"], one["node"], one["state"])
        for number, partition in enumerate(told["partitions"])
        for one in partition["assignments"]
    ]


def planned(nodes: Nodes, index: int) -> int:
    (told,) = nodes.ask(index, "plan", TABLE)
    return told["moves_count"]


def copies(nodes: Nodes, index: int) -> tuple[int, int]:
    """Return how many replicas a node has, and how many of them are quarantined."""
    told = nodes.ask(index, "info")["tables"]
    return told["copies"], told["copies_aside"]


def is_quiet(nodes: Nodes, index: int) -> bool:
    """True if no move is planned or under way, and each partition has all its replicas."""
    if planned(nodes, index):  # A move that has begun is no longer planned, so this is read first.
        return False
    now = held(nodes, index)
    of_each = Counter(one.partition for one in now)
    replicas = nodes.ask(index, "partition_map", TABLE, {"limit": 1})["replication"]
    return all(one.state == "AVAILABLE" for one in now) and {*of_each.values()} == {replicas}


def shares(nodes: Nodes, by: Sequence[int], among: Iterable[int]) -> dict[str, int]:
    """Return each node's number of partitions, once only `among` have the table and `by` agree."""
    index, wanted = by[0], {f"n{each}" for each in among}

    def look() -> tuple[bool, dict[str, int], dict[str, tuple[int, int]]]:
        is_over = is_quiet(nodes, index)  # Read this first: the last move may end meanwhile.
        of_map = Counter(one.node for one in held(nodes, index))
        return is_over, of_map, {f"n{each}": copies(nodes, each) for each in by}

    def holds(seen: tuple[bool, dict[str, int], dict[str, tuple[int, int]]]) -> bool:
        is_over, of_map, there = seen
        return is_over and {*of_map} == wanted and there == {name: (of_map[name], 0) for name in there}

    return dict(until(look, holds)[1])


def hosts_of(nodes: Nodes, index: int) -> dict[int, list[str]]:
    """Return the running nodes of each partition, as a node knows the map."""
    up = {node.name for node in nodes.cluster.status() if node.state == "ready"}
    hosts: dict[int, list[str]] = {}
    for one in held(nodes, index):
        if one.state == "AVAILABLE" and one.node in up:
            hosts.setdefault(one.partition, []).append(one.node)
    return hosts


def starts(nodes: Nodes, index: int) -> list[bytes]:
    """Return where the ranges of a range table begin, as a node knows them; nothing for a hash table."""
    told = nodes.ask(index, "partition_map", TABLE, {"limit": MAX_OF_MAP})
    return [one["start"] for one in told["partitions"]] if told["kind"] == "range" else []


def of_one_map(nodes: Nodes, index: int, look: Callable[[Nodes, int], T]) -> tuple[T, list[bytes]]:
    """Return a view of the map and the starts of its partitions, unchanged by splits in between."""
    begin = starts(nodes, index)
    while True:
        before, told, begin = begin, look(nodes, index), starts(nodes, index)
        if begin == before:
            return told, begin


def number_of(key: bytes, count: int, begin: Sequence[bytes]) -> int:
    """Return the partition of a key, among `count` shards or the ranges that begin at `begin`."""
    return bisect_right(begin, key) - 1 if begin else TABLE_HASHES["murmur3"](key) % count


def by_copies(
    addresses: Mapping[str, str], hosts: Mapping[int, Sequence[str]], keys: Sequence[bytes], begin: Sequence[bytes]
) -> dict[str, dict[bytes, bytes | None]]:
    """Return each replica's values of these keys; if a host is down, another host is asked twice."""
    asked: dict[tuple[int, str], list[bytes]] = {}
    for key in keys:
        some = hosts[number_of(key, len(hosts), begin)]
        for number in range(max(map(len, hosts.values()))):
            asked.setdefault((number, some[number % len(some)]), []).append(key)
    found: dict[str, dict[bytes, bytes | None]] = {}
    for (number, node), some_keys in asked.items():
        with blocking.connect(addresses[node], timeout_ms=TIMEOUT_MS) as client:
            values = client.call("get_many", TABLE, some_keys, {"local": True})[0]
        found.setdefault(f"copy {number}", {}).update(zip(some_keys, values, strict=True))
    return found


def settled(
    addresses: Mapping[str, str], hosts: Mapping[int, Sequence[str]], keys: Sequence[bytes], begin: Sequence[bytes] = ()
) -> dict[str, dict[bytes, bytes | None]]:
    """Return each replica's values once all are equal, or after the patience ends: the judge reports differences."""
    ends: dict[str, dict[bytes, bytes | None]] = {}

    def look() -> bool:
        ends.update(by_copies(addresses, hosts, keys, begin))
        return all(end == ends["copy 0"] for end in ends.values())

    with contextlib.suppress(AssertionError):
        until(look, lambda are_same: are_same)
    return ends


class Traffic:
    """Majority writes and reads by both kinds of clients, half of them by the table's map, and sessions."""

    def __init__(self, addresses: Mapping[str, str], *, seed: int, pause_s: float = 0.0) -> None:
        """`addresses`: by node name; `pause_s`: the pause of sessions between requests."""
        self._addresses = addresses
        self._stack = ExitStack()
        self.load = Load([*addresses.values()], seed=seed, by_map=True)
        self.hopping = Hopping([*addresses.values()], seed=seed, levels=("majority",), by_map=True, pause_s=pause_s)

    def __enter__(self) -> Self:
        self._stack.enter_context(self.load)
        self._stack.enter_context(self.hopping)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def goes_on(self, least_s: float, least: int) -> None:
        """Return after this time and this many reads and writes that began from now on."""
        had = self.hopping.reads, self.hopping.writes
        self.load.goes_on(least_s, least)
        until(
            lambda: (self.hopping.reads - had[0], self.hopping.writes - had[1]),
            lambda counts: min(counts) >= least,
        )

    def faults(self, hosts: Mapping[int, Sequence[str]], begin: Sequence[bytes] = ()) -> list[str]:
        """Compare the final content of the partitions' hosts with all answers; return the violations."""
        keys = sorted({write.key for write in self.load.writes})
        judged = judge(self.load.writes, self.load.reads, settled(self._addresses, hosts, keys, begin))
        return judged.faults + self.hopping.faults() + self.load.trouble

    def failures(self) -> tuple[list[Failed], list[Failed]]:
        """Return failed reads and writes, except those of sessions that have seen an unacknowledged write."""
        reads = [Failed(read.began_s, read.ended_s, read.error) for read in self.load.reads if read.error]
        writes = [Failed(one.began_s, one.ended_s, one.error) for one in self.load.writes if one.end != DONE]
        for failed in self.hopping.unfounded():
            (writes if failed.is_write else reads).append(Failed(failed.began_s, failed.ended_s, failed.error))
        return reads, writes

    def counts(self) -> tuple[int, int]:
        reads = sum(not read.error for read in self.load.reads)
        writes = sum(write.end == DONE for write in self.load.writes)
        return reads + self.hopping.reads, writes + self.hopping.writes


def traffic_at(nodes: Nodes, *, seed: int, pause_s: float = 0.0) -> Traffic:
    return Traffic({node.name: node.address for node in nodes.cluster.status()}, seed=seed, pause_s=pause_s)


def check(nodes: Nodes, traffic: Traffic, index: int) -> None:
    """Check the table's final content at the hosts of a node's map against all answers, and the logs."""
    hosts, begin = of_one_map(nodes, index, hosts_of)
    assert traffic.faults(hosts, begin) == []
    assert trouble(nodes.cluster) == []


def lay(cluster: Cluster, *, replication: int, kind: str = "hash", partitions: int = 0) -> dict[bytes, bytes]:
    """Make the table at the present nodes; return the records that were put on all its replicas."""
    options = {"kind": kind, "replication": replication} | ({"partitions": partitions} if partitions else {})
    records = {b"old/%d" % number: b"%0*d" % (VALUE_BYTES, number) for number in range(OLD)}
    with cluster.connect(1, timeout_ms=TIMEOUT_MS) as client:
        # A node is alive before it is known that it takes part; then nothing is done.
        until(lambda: client.call("create_table", TABLE, options), lambda _: True)
        until(lambda: client.table(TABLE).delete(b"first", level="all"), lambda _: True)
        listed = [*records.items()]
        for at in range(0, OLD, PUT_AT_ONCE):
            client.table(TABLE).put_many(listed[at : at + PUT_AT_ONCE], level="all")
    return records


def still_there(cluster: Cluster, index: int, records: dict[bytes, bytes]) -> list[bytes]:
    """Return those records that a node does not answer correctly."""
    keys = [*records]
    with cluster.connect(index, timeout_ms=TIMEOUT_MS) as client:
        found = client.table(TABLE).get_many(keys)
    return [key for key, value in zip(keys, found, strict=True) if value != records[key]]


def lose(nodes: Nodes, victim: int, *, left: Sequence[int]) -> Death:
    """Kill a node and remove its disk; return when the remaining nodes know that the node is dead."""
    killed_s = time.monotonic()
    data = Path(nodes.cluster.kill(victim).data)
    data.rename(data.with_name("lost"))
    wanted = [f"n{index}" for index in left]
    for index in left:
        until(lambda index=index: nodes.alive(index), lambda alive: alive == wanted)
    return Death(killed_s, time.monotonic())


@contextlib.contextmanager
def newcomer_to(
    place: Path, settings: Mapping[str, str], *, partitions: int
) -> Iterator[tuple[Nodes, dict[bytes, bytes]]]:
    """Start five nodes, of which four hold a table with three replicas; yield them and the table's records."""
    with Cluster(place, nodes=4, settings=settings) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(range(1, 5))
        records = lay(cluster, partitions=partitions, replication=3)
        cluster.add()
        all_know(nodes, range(1, 6))
        yield nodes, records


def all_know(nodes: Nodes, by: Sequence[int]) -> None:
    """Return when each of these nodes sees all of them alive and knows the table, whose acceptors are all five."""
    nodes.all_alive(by)
    wanted = [f"n{index}" for index in by]
    for index in by:
        until(lambda index=index: held(nodes, index), lambda _: True)
        until(lambda index=index: deciders(nodes, index), lambda found: found == [wanted, wanted])


def deciders(nodes: Nodes, index: int) -> list[list[str]]:
    """Return the acceptors of the catalogue and of the table, as a node knows them."""
    registers = nodes.ask(index, "metadata_status", None)
    return [sorted({one["node"] for one in register["old"] + register["new"]}) for register in registers]
