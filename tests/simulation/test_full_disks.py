"""Three nodes with full disks take only requests that free room; then they write again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import msgpack
import pytest
import trio

from gossipkv.errors import GossipKVError, NotReady, Overloaded, Unknown
from gossipkv.storage.engine.shell import LOOK_PERIOD_S
from tests.world.nodes.phases import begin, settle
from tests.world.nodes.table_clients import TableClients
from tests.world.nodes.whole_cluster import simulated

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

DISK_BYTES = 8 << 20
VALUE = bytes(40 << 10)
RELIEVED_S = 30.0
SETTLED_LOOKS = 3


async def put_all(cluster: SimulatedCluster) -> int:
    """Write to all nodes in turn until each refuses for its disk; return the number of keys tried."""
    number, full = 0, set[int]()
    while len(full) < len(cluster.machines):
        assert number < 3 * DISK_BYTES // len(VALUE), "the disks are not full"
        at = number % len(cluster.machines)
        try:
            await cluster.ask(cluster.machines[at], "put", "t", b"%05d" % number, VALUE)
        except Overloaded as error:
            if "too little free space" in error.message:
                full.add(at)
        except Unknown:
            pass
        number += 1
    return number


async def does(cluster: SimulatedCluster, machine: NodeMachine, method: str, *params: object) -> bool:
    """True if the node executes the request."""
    try:
        await cluster.ask(machine, method, *params)
    except GossipKVError:
        return False
    return True


async def fill(cluster: SimulatedCluster, happens: str, ttl_ms: int | None = None) -> tuple[int, list[NodeMachine]]:
    """Fill the disks up to the reserve; return the number of keys tried and the running nodes."""
    for machine in cluster.machines:
        machine.disk.capacity_bytes = DISK_BYTES
    await begin(cluster)
    clients = TableClients(cluster)
    await clients.create("t", replication=3, ttl_ms=ttl_ms)
    await clients.create("u", replication=3)
    count = await put_all(cluster)
    for machine in cluster.machines if happens == "restart" else ():
        await machine.stop()
    for machine in cluster.machines if happens == "restart" else ():
        await machine.start()
    if happens == "death":
        cluster.machines[2].lose_power()
    await settle(cluster, 60.0)
    running = [machine for machine in cluster.machines if machine.runs]
    looks = 0
    while looks < SETTLED_LOOKS:  # After several looks without change, compactions that need no room are done.
        taken = [machine.disk.free_bytes("/") for machine in running]
        for machine, free_bytes in zip(running, taken, strict=True):
            machine.disk.capacity_bytes -= free_bytes
        await trio.sleep(LOOK_PERIOD_S)
        is_writable = any([await does(cluster, machine, "put", "u", b"k", b"v") for machine in running])
        looks = 0 if is_writable or any(taken) else looks + 1
    return count, running


async def check_relieved(cluster: SimulatedCluster, how: str, happens: str) -> None:
    """With a dead node no tombstone is collected, but hidden values are removed."""
    count, running = await fill(cluster, happens)
    large = {"kind": "hash", "partitions": 2000, "replication": 1, "timeout_ms": 5000}
    for machine in running:  # The maps of a few such tables would fill the reserve.
        assert not await does(cluster, machine, "create_table", "more", large), "it frees nothing"
    left = [("drop_table", "t")] if how == "drop" else [("delete", "t", b"%05d" % number) for number in range(count)]

    async def all_is_taken() -> bool:
        while left and await does(cluster, running[len(left) % len(running)], *left[-1]):
            left.pop()
        return not left

    await cluster.until(all_is_taken, within_s=RELIEVED_S)
    await cluster.until(partial(each_writes, cluster, running), within_s=RELIEVED_S)
    if how == "delete":

        async def is_gone() -> bool:
            """A key that was deleted has no value."""
            value, _ = cast("tuple[Value, bytes]", await cluster.ask(running[0], "get", "t", b"%05d" % (count // 2)))
            return value is None

        await cluster.until(is_gone, within_s=RELIEVED_S)


async def each_writes(cluster: SimulatedCluster, running: list[NodeMachine]) -> bool:
    return all([await does(cluster, machine, "put", "u", b"k", b"v") for machine in running])


@pytest.mark.parametrize(("how", "happens"), [("delete", "death"), ("drop", "restart")])
@simulated(3)
async def test_three_full_disks_are_relieved(cluster: SimulatedCluster, how: str, happens: str) -> None:
    await check_relieved(cluster, how, happens)


@simulated(3)
async def test_a_full_node_passes_on_requests_of_tables_made_meanwhile(cluster: SimulatedCluster) -> None:
    """A full node stores no first map of a new table, so other nodes answer, even a while after room is back."""
    await begin(cluster)
    one, two, three = cluster.machines
    wanted = {"kind": "hash", "replication": 2, "partitions": 4}
    await TableClients(cluster).create("t", replication=3)
    await trio.sleep(15)  # The catalogue has three acceptors by then.
    one.disk.capacity_bytes -= one.disk.free_bytes("/")
    await trio.sleep(2 * LOOK_PERIOD_S)
    await cluster.ask(two, "create_table", "u", wanted)
    await cluster.ask(two, "put", "u", b"k", b"v", {"level": "all"})

    async def is_named() -> bool:
        return any(each["name"] == "u" for each in cast("list[dict[str, Value]]", await cluster.ask(one, "databases")))

    await cluster.until(is_named, within_s=RELIEVED_S)
    for _ in range(2):
        began_s = trio.current_time()
        assert (await cluster.ask(one, "get", "u", b"k"))[0] == b"v"
        assert (await cluster.ask(one, "get_many", "u", [b"k", b"l"]))[0] == [b"v", None]
        assert (await cluster.ask(one, "scan", "u", {}))[0] == [[b"k", b"v"]]
        for method, *params in (("put", b"k", b"w"), ("put_many", [[b"l", b"w"]]), ("delete", b"l")):
            await cluster.ask(one, method, "u", *params)
        assert (await cluster.ask(three, "get", "u", b"k"))[0] == b"w"
        assert (await cluster.ask(one, "partition_map", "u"))["kind"] == "hash"
        assert trio.current_time() - began_s < 2.0
        await cluster.ask(two, "put", "u", b"k", b"v")
    for method, *params in (("get", "u", b"k"), ("partition_map", "u"), ("put", "u", b"k", b"w")):
        with pytest.raises(NotReady, match="does not know the state of"):  # A forwarded request is not forwarded again.
            await cluster.ask(one, "within", (1 << 64) - 1, method, msgpack.packb(params))
