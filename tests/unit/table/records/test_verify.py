"""Comparison of replicas on request: differences, replicas that cannot be compared, and time limits."""

from __future__ import annotations

from types import SimpleNamespace

import msgpack
import pytest
import trio
from trio.testing import MockClock

from gossipkv.errors import BadRequest, Overloaded, Unavailable, Unknown
from gossipkv.replication.maintenance.digests import MAX_RECORDS, ReplicaDigest
from gossipkv.replication.replica import clock
from gossipkv.table.records.router import PartitionRoute
from gossipkv.table.records.verify import DIFFERENT, EQUAL, MAX_PASSES, NOT_COMPARED, Verifier, judge
from gossipkv.wire.arguments import Arguments
from tests.unit.replication.memory import TABLE, Cluster

RECORDS = 2 * MAX_RECORDS + 9  # Three pages.


class Asked:
    """Three nodes that verify the partition that they hold."""

    def __init__(self):
        self.cluster = Cluster()
        self.nodes = self.cluster.nodes
        self.asked = []
        self.answers = {}  # Answers of nodes by number, in place of real ones.
        self.down = set()
        self.before_answer = lambda: None
        self.verifying = {node.uuid: Verifier(self.deciding(node), self) for node in self.nodes}
        first = self.nodes[0]
        for number in range(RECORDS):
            first.write(**{f"k{number}": b"v"})
        self.nodes[1].write(k0=None)
        self.cluster.pass_s(1.0)

    def deciding(self, node):
        return SimpleNamespace(
            service=SimpleNamespace(replicating=lambda: node),
            directory=SimpleNamespace(name_of=lambda uuid: f"n{uuid[0]}"),
            peers=self,
        )

    def is_up(self, node):
        return node[0] not in self.down

    def route(self, _name):
        """Return a table of two partitions; the second one has no replica."""
        hosts, partition = tuple(node.uuid for node in self.nodes), self.nodes[0].copy.identity.partition
        places = (
            PartitionRoute(partition, b"", b"m", hosts, (), 1),
            PartitionRoute(partition + 1, b"m", None, hosts, (), 1),
        )
        return SimpleNamespace(table=SimpleNamespace(id=TABLE), places=lambda: iter(places))

    async def ask(self, node, method, params, timeout_s):
        assert timeout_s > 0
        self.asked.append(node[0])
        self.before_answer()
        answer = self.answers.get(node[0])
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            arguments = Arguments(method.encode(), msgpack.packb(params))
            answer = await self.verifying[node].digest(arguments).result()
        return answer

    async def verify(self, timeout_ms=5000, **options):
        params = ["t", {"timeout_ms": timeout_ms, **options}]
        return (
            await self.verifying[self.nodes[0].uuid].verify(Arguments(b"verify_table", msgpack.packb(params))).result()
        )


def told(asked, **options):
    return trio.run(lambda: asked.verify(**options), clock=MockClock(autojump_threshold=0))


@pytest.fixture
def asked():
    """Return nodes with records and a tombstone."""
    return Asked()


def test_equal_copies(asked):
    """The answer counts live records and names the next partition; tombstones do not count."""
    answer = told(asked)
    assert (answer["verdict"], answer["why"], answer["next"]) == (EQUAL, None, b"m")
    assert [(one["node"], one["records"]) for one in answer["copies"]] == [(f"n{n}", RECORDS - 1) for n in (1, 2, 3)]
    assert len({one["digest"] for one in answer["copies"]}) == 1
    assert sorted(asked.asked) == [2, 3]


@pytest.mark.parametrize("planted", ["another value", "missing", "too many"])
def test_what_differs_is_named(asked, planted):
    """One differing record on any page is found, and nothing is changed."""
    third = asked.nodes[2]
    records = third.spaces[third.copy.space]
    data = records[b"\1k7"]
    if planted == "another value":
        records[b"\1k7"] = data[:-1] + b"w"
    elif planted == "missing":
        del records[b"\1k7"]
    else:
        records[b"\1zz"] = data
    before = dict(records)
    answer = told(asked)
    assert (answer["verdict"], answer["why"]) == (DIFFERENT, "n1 and n3 have the same writes, but different records")
    assert records == before
    assert asked.nodes[0].live[b"k7"] == b"v"


@pytest.mark.parametrize("error", [Unavailable("n3 is not reached"), Unknown("n3 has not answered")])
def test_a_node_that_does_not_answer(asked, error):
    """A silent node is asked once, since there may be more partitions; the other replicas are reported."""
    asked.answers[3] = error
    answer = told(asked)
    assert (answer["verdict"], answer["why"]) == (NOT_COMPARED, f"n3: {error.message}")
    assert [set(one) for one in answer["copies"]] == [{"node", "records", "digest"}] * 2 + [{"node", "error"}]
    assert asked.asked.count(3) == 1


def test_a_node_that_is_down(asked):
    """A down node is not asked, since every partition would wait for a connection."""
    asked.down.add(3)
    answer = told(asked)
    assert (answer["verdict"], answer["why"]) == (NOT_COMPARED, "n3: n3 is down")
    assert asked.asked == [2]


def test_a_copy_that_moves_while_it_is_read(asked):
    """A digest restarts when its replica is written; at the timeout the writes are reported."""
    first = asked.nodes[0]
    writes = []

    def scan(*page, **options):
        writes.append(None)
        first.write(k1=b"%d" % len(writes))
        asked.cluster.pass_s(0.5)
        return type(first).scan(first, *page, **options)

    first.scan = scan
    answer = told(asked, timeout_ms=1000)
    assert answer["verdict"] == NOT_COMPARED
    assert "n1: the partition is being written to" in answer["why"]
    assert len(writes) > 2
    del first.scan
    assert told(asked)["verdict"] == EQUAL


def test_so_many_at_a_time(asked):
    """Each pass reads a whole partition; beyond the limit a request is refused until a pass ends."""
    first = asked.nodes[0]
    verifying, identity = asked.verifying[first.uuid], first.copy.identity
    params = msgpack.packb([first.uuid, TABLE, identity.partition, 1000, 0])

    async def scenario():
        async def take():
            outcomes.append(await verifying.digest(Arguments(b"table_digest", params)).result())

        outcomes = []
        async with trio.open_nursery() as nursery:
            for _ in range(MAX_PASSES):
                nursery.start_soon(take)
            for _ in range(2):  # After the first checkpoint all have begun, and after the second one more page is left.
                await trio.lowlevel.checkpoint()
            with pytest.raises(Overloaded, match="already verifies 4 partitions"):
                await take()
        await take()
        return outcomes

    assert len(trio.run(scenario)) == MAX_PASSES + 1


def test_what_is_not_here(asked):
    """An absent partition is reported, and a position behind the last partition or an invalid start is not verified."""
    answer = told(asked, start=b"m", timeout_ms=200)
    assert (answer["verdict"], answer["next"]) == (NOT_COMPARED, None)
    assert "the node does not hold the partition" in answer["why"]
    assert told(asked, start=b"n") is None
    for options in ({"start": 1}, {"timeout_ms": 0}, {"timeout_ms": 1 << 40}, {"other": 1}):
        with pytest.raises(BadRequest):
            told(asked, **options)


def test_one_copy_is_equal_to_nothing():
    assert judge({"n1": ReplicaDigest(b"", 1, 1)}) == (NOT_COMPARED, "the partition has one replica")
    assert judge({"n1": ReplicaDigest(b"", 1, 1), "n2": ReplicaDigest(clock.of([(7, 0)]), 1, 1)}) == (EQUAL, None)
