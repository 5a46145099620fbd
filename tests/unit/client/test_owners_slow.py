"""Requests with a table's map go to an owner of the key, and never fail because of the map."""

from __future__ import annotations

import pytest
import trio

import gossipkv
from gossipkv.client import blocking
from gossipkv.client.owners import owners_of
from gossipkv.errors import ProtocolError
from tests.oracle import hashing
from tests.unit.client.behaviours import refused_address
from tests.unit.client.fake_node import FakeNode
from tests.unit.client.table_node import TableNode

SHARDS = 8
PAGE = 3  # Partitions in an answer.
KEYS = [b"k%d" % number for number in range(40)]


class Cluster:
    """Fake nodes that share a hash table's records and map."""

    def __init__(self, nodes=3):
        self.config = 1 << 48
        self.behaviours = [Owner(self, number) for number in range(nodes)]
        self.nodes = [FakeNode(behaviour) for behaviour in self.behaviours]
        self.addresses = {f"n{number}": node.address for number, node in enumerate(self.nodes)}
        self.owners = [number % nodes for number in range(SHARDS)]
        self.versions = [self.config] * SHARDS

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.close()

    def shard(self, key):
        return hashing.murmur3_32(key) % SHARDS

    def move(self, shard, to):
        self.config += 1
        self.owners[shard], self.versions[shard] = to, self.config


class Owner(TableNode):
    """A node of that cluster."""

    def __init__(self, cluster, number):
        super().__init__()
        self.cluster, self.number = cluster, number
        self.refuses = None  # An error for requests with a map.
        self.has_no_map = None  # An error for requests for the map.
        self.configs = []  # The map versions of the requests.

    def __call__(self, connection):
        while (request := connection.next_request()) is not None:
            message_id, method, (_, *params) = request
            self.asked.append((method, params))
            error = self.has_no_map if method == "partition_map" else self.refusal(params[0], params[-1])
            result = None if error is not None else getattr(self, method)(*params)
            connection.answer(message_id, result, error)

    def refusal(self, key, options):
        """Return the refusal of a request by a node with the newest map, or None."""
        config = options.get("config", 0) if isinstance(options, dict) else 0
        self.configs.append(config)
        if config and self.refuses is not None:
            return self.refuses
        if config and config < self.cluster.versions[self.cluster.shard(key)]:
            return ["STALE_CONFIG", "an older map", {"config": self.cluster.config}]
        return None

    def partition_map(self, options=None):
        cluster, start = self.cluster, int.from_bytes((options or {}).get("start", b"\0"), "big")
        rows = [
            {
                "id": shard,
                "start": shard.to_bytes(4, "big"),
                "assignments": [
                    {"node": f"n{cluster.owners[shard]}", "slot": 0, "state": "AVAILABLE", "id": "0"},
                    {"node": "n0", "slot": 0, "state": "LEAVING", "id": "1"},
                ],
            }
            for shard in range(start, min(start + PAGE, SHARDS))
        ]
        told = {"kind": "hash", "partitioner": "murmur3", "config": cluster.config, "partitions": rows}
        return {
            **told,
            "addresses": cluster.addresses,
            "next": (start + PAGE).to_bytes(4, "big") if start + PAGE < SHARDS else None,
        }


def by_threads(cluster, *calls):
    """Run calls on one blocking client of the first node; plain functions run between them."""
    with blocking.connect(cluster.nodes[0].address, timeout_ms=20_000) as client:
        table = client.table("carts", by_map=True)
        return [call() if callable(call) else getattr(table, call[0])(*call[1:]) for call in calls]


def by_tasks(cluster, *calls):
    async def ask():
        async with gossipkv.connect(cluster.nodes[0].address, timeout_ms=20_000) as client:
            table = client.table("carts", by_map=True)
            return [call() if callable(call) else await getattr(table, call[0])(*call[1:]) for call in calls]

    return trio.run(ask)


@pytest.fixture(params=[by_threads, by_tasks])
def run(request):
    """Return a runner for either client."""
    return request.param


@pytest.fixture
def cluster():
    with Cluster() as cluster:
        yield cluster


def asked_of(node):
    """Return the keys that a node was asked for."""
    return [params[0] for method, params in node.asked if method != "partition_map"]


def test_each_key_goes_to_its_owner(cluster, run):
    """The map is fetched once from the node in use, and each request names its version."""
    run(cluster, *(("put", key, b"v") for key in KEYS), *(("get", key) for key in KEYS), ("delete", KEYS[0]))
    for number, node in enumerate(cluster.behaviours):
        assert {cluster.owners[cluster.shard(key)] for key in asked_of(node)} <= {number}
        assert {*node.configs} == {cluster.config}
    assert sum(len(asked_of(node)) for node in cluster.behaviours) == 2 * len(KEYS) + 1
    pages = [[method for method, _ in node.asked].count("partition_map") for node in cluster.behaviours]
    assert pages == [-(-SHARDS // PAGE), 0, 0]


def test_a_map_that_has_changed_is_fetched_from_who_says_so(cluster, run):
    """The request is sent again to the new owner, and is executed once."""
    key = next(key for key in KEYS if cluster.owners[cluster.shard(key)] == 1)
    run(cluster, ("put", key, b"1"), lambda: cluster.move(cluster.shard(key), 2), ("put", key, b"2"), ("get", key))
    zero, one, two = cluster.behaviours
    assert (one.records, two.records) == ({key: b"1"}, {key: b"2"})
    assert asked_of(zero) == []
    assert {*two.configs} == {cluster.config}
    assert [method for method, _ in one.asked].count("partition_map") == -(-SHARDS // PAGE)


@pytest.mark.parametrize(
    "error", [["NOT_READY", "an older map here", {"waits_for": "map"}], ["UNAVAILABLE", "its store takes none", {}]]
)
def test_what_an_owner_refuses_goes_to_the_node_in_use(cluster, run, error):
    """The request is repeated without a map at the node in use, which forwards it."""
    key = next(key for key in KEYS if cluster.owners[cluster.shard(key)] == 1)
    cluster.behaviours[1].refuses = error
    run(cluster, ("put", key, b"1"), ("get", key))
    assert asked_of(cluster.behaviours[0]) == [key, key]
    assert cluster.behaviours[0].configs == [0, 0]


def test_addresses_that_lead_nowhere(cluster, run):
    """Unreachable owners are not tried each time, and requests go to the node in use."""
    cluster.addresses |= {"n1": refused_address(), "n2": refused_address()}
    run(cluster, *(("put", key, b"v") for key in KEYS))
    assert {*asked_of(cluster.behaviours[0])} == {*KEYS}


@pytest.mark.parametrize("error", [["NOT_READY", "its map is not here", {}], ["UNKNOWN_METHOD", "none", {}]])
def test_nodes_without_the_map(cluster, run, error):
    """Nodes without the map are not asked for it each time."""
    for node in cluster.behaviours:
        node.has_no_map = error
    run(cluster, *(("put", key, b"v") for key in KEYS))
    assert asked_of(cluster.behaviours[0]) == KEYS
    assert {*cluster.behaviours[0].configs} == {0}
    assert len(cluster.behaviours[0].asked) <= len(KEYS) + SHARDS


@pytest.mark.parametrize(
    "page",
    [
        {"config": "1", "addresses": {}, "partitions": []},
        {"config": 1, "addresses": [], "partitions": []},
        {"config": 1, "addresses": {}, "partitioner": "md5", "partitions": []},
        {"config": 1, "addresses": {}, "partitions": [{"start": 7, "assignments": []}]},
    ],
)
def test_what_is_no_map(page):
    with pytest.raises(ProtocolError):
        owners_of([page])


def test_ranges():
    """A key belongs to the last range that begins at the key or before."""
    rows = [
        {"start": start, "assignments": [{"node": node, "state": "AVAILABLE"}]}
        for start, node in ((b"", "a"), (b"h", "b"), (b"p", "c"))
    ]
    addresses = {"a": "127.0.0.1:1", "b": "127.0.0.1:2"}
    owners = owners_of([{"config": 1, "addresses": addresses, "partitions": rows}])
    found = [[address.port for address in owners.of(key)] for key in (b"", b"g", b"h", b"oz", b"p", b"z")]
    assert found == [[1], [1], [2], [2], [], []]


READINGS = {"kind": "range", "config": 7, "time_key": [0, 1, "s"], "smear": True}
BOUNDS = (b"", b"\x10", b"\x20", b"\xf0")  # All but the second range span more than a minute.


class Reader(TableNode):
    """One of three nodes; the first holds a table of readings, and all smear puts."""

    def __init__(self, cluster):
        super().__init__()
        self.cluster = cluster

    def partition_map(self, options=None):
        held = [{"node": "n0", "slot": 0, "state": "AVAILABLE", "id": "0"}]
        rows = [{"id": number, "start": start, "assignments": held} for number, start in enumerate(BOUNDS)]
        return {**READINGS, "partitions": rows, "addresses": self.cluster.addresses}

    def put(self, key, value, options):
        """Accept the put, unless it has a level."""
        return b"token" if "level" in options else {"accepted": True}


def test_puts_that_may_be_smeared_go_to_those_that_smear(run):
    """Puts into short ranges go to other nodes than the owner; all other writes go to the owner."""
    with Cluster() as readers:
        readers.behaviours = [Reader(readers) for _ in range(3)]
        for node, behaviour in zip(readers.nodes, readers.behaviours, strict=True):
            node.behaviour = behaviour
        short, long, last = b"\x11k", b"\x31k", b"\xf1"
        run(readers, *[("put", short, b"v")] * 20, ("put", long, b"v"), ("put", last, b"v"), ("delete", short))
        one, *others = [asked_of(node) for node in readers.behaviours]
        assert one == [long, last, short]
        assert {*others[0]} == {*others[1]} == {short}
        assert sum(map(len, others)) == 20
