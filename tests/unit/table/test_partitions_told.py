"""`partitions`: where each begins and ends, who holds it, how large and busy it is: whole nodes, page by page."""

from __future__ import annotations

from types import SimpleNamespace

import msgpack
import trio
from trio.testing import MockClock

from gossipkv.errors import BadRequest, Unavailable, UnknownDatabase
from gossipkv.table.sizes import FRESH_S, Size, Sizes
from tests.unit.table.test_placing import die, made
from tests.world.nodes.phases import refused
from tests.world.nodes.whole_cluster import simulate

RANGES = {"kind": "range", "bounds": [b"m"], "replication": 2}


def shape(told):
    """What is told but for hosts and sizes, which are looked at by themselves."""
    return [(one["start"], one["end"]) for one in told["partitions"]], told["next"]


def test_pages_of_ranges_and_of_shards():
    """In order, each with its hosts and their states, and about as many bytes as were written."""

    async def scenario(cluster):
        one = await made(cluster, RANGES)
        for number in range(40):
            await cluster.ask(one, "put", "t", b"n%02d" % number, bytes(1000), {"level": "all"})
        for machine in cluster.machines:
            told = await cluster.ask(machine, "partitions", "t")
            assert (told["table"], told["kind"], *shape(told)) == ("t", "range", [(b"", b"m"), (b"m", None)], None)
            known = (await cluster.ask(machine, "partition_map", "t"))["partitions"]
            for row, part in zip(told["partitions"], known, strict=True):
                hosts = [{key: one[key] for key in ("node", "slot", "state")} for one in part["assignments"]]
                assert (row["id"], row["hosts"]) == (part["id"], hosts)
            empty, full = (row["bytes"] for row in told["partitions"])
            assert empty < 1000 < full, told
        page = await cluster.ask(one, "partitions", "t", {"limit": 1})
        assert shape(page) == ([(b"", b"m")], b"m")
        assert shape(await cluster.ask(one, "partitions", "t", {"start": page["next"]})) == ([(b"m", None)], None)
        assert shape(await cluster.ask(one, "partitions", "t", {"start": b"z"})) == ([], None)
        await cluster.ask(one, "create_table", "h", {"kind": "hash", "partitions": 3, "replication": 1})
        page = await cluster.ask(one, "partitions", "h", {"limit": 2})
        assert (page["kind"], *shape(page)) == ("hash", [(bytes(4), None), (b"\0\0\0\1", None)], b"\0\0\0\2")
        for kind, *params in (UnknownDatabase, "u"), (BadRequest, "t", {"limit": 0}), (BadRequest, "t", {"start": 5}):
            assert type(await refused(cluster, one, "partitions", *params)) is kind

    simulate(scenario, 1, machines=3)


def test_nobody_says_how_large_it_is():
    """Its hosts are down: it is told all the same."""

    async def scenario(cluster):
        one = await made(cluster, {**RANGES, "replication": 1})
        rows = (await cluster.ask(one, "partitions", "t"))["partitions"]
        there = next(row for row in rows if row["hosts"][0]["node"] != "n1")
        await die(cluster, next(each for each in cluster.machines if each.name == there["hosts"][0]["node"]))
        await trio.sleep(FRESH_S)
        after = (await cluster.ask(one, "partitions", "t"))["partitions"]
        unknown = {**there, "bytes": None, "rows": None, "rate": None}
        assert next(row for row in after if row["id"] == there["id"]) == unknown

    simulate(scenario, 1, machines=3)


SAID = {b"a": [[7, 100], [8, 5]], b"b": [[7, 90, 3, 1.5], [9], ["8", 1]], b"c": [[7, 80, 4, 2]], b"d": 5}


def asked_of(said, asked):
    """What asks these nodes, of which `me` is one; who is asked is noted."""

    async def ask(node, *_):
        asked.append(node)
        await trio.lowlevel.checkpoint()
        if node not in said:
            raise Unavailable("it is not reached")
        return msgpack.packb(said[node])

    return Sizes(
        SimpleNamespace(
            taking_part=lambda: (SimpleNamespace(me=SimpleNamespace(node=b"me")), None),
            replicating=lambda: SimpleNamespace(sizes=lambda _: {8: 6}),
            asking=SimpleNamespace(ask=ask),
        )
    )


def test_nodes_of_two_releases():
    """Of copies the largest counts, of requests all; who says bytes alone, what is no row, or nothing, does no harm."""
    found = trio.run(asked_of(SAID, []).of, bytes(16), {b"me", *SAID, b"e"})
    assert found == {7: Size(100, 4, 3.5), 8: Size(6)}


def test_what_was_said_counts_for_a_while():
    """Nobody is asked twice within it, also by two at once; then, and of another table, all are asked anew."""
    asked, said = [], dict(SAID)
    sizes = asked_of(said, asked)

    async def ask():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sizes.of, bytes(16), {b"a"})
            nursery.start_soon(sizes.of, bytes(16), {b"a", b"b"})
        assert await sizes.of(bytes(16), {b"b"}) == {7: Size(100, 3, 1.5), 8: Size(5)}
        assert sorted(asked) == [b"a", b"b"]
        await trio.sleep(FRESH_S)
        said[b"a"] = [[7, 200]]
        assert await sizes.of(bytes(16), {b"a"}) == {7: Size(200)}
        assert await sizes.of(b"x" * 16, {b"a"}) == {7: Size(200)}
        assert sorted(asked) == [b"a", b"a", b"a", b"b"]

    trio.run(ask, clock=MockClock(autojump_threshold=0))
