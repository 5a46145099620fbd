"""A split writes little to a server's log, and no more in a larger map."""

from __future__ import annotations

import pytest

from gossipkv.register.metadata.catalogue import WantedTable
from gossipkv.register.metadata.partitions import RANGE, decode_partition
from tests.unit.register.metadata.quiet_nodes import quiet

SPLITS = 8


async def split(nodes, table, key, written):
    """Divide a range, and settle its children; return the bytes of the division, and of all of it."""
    parent = decode_partition(nodes.metadata("a").view(table).get(key).record)
    draw = nodes.random.getrandbits
    children = tuple((first, draw(63), tuple(draw(63) for _ in parent.assignments)) for first in (key, key + b"\0"))
    sizes = [sum(written)]
    steps = [("divide", key, parent.id, children)]
    steps += [("settle", first, id_, tuple((one.id, 0) for one in parent.assignments)) for first, id_, _ in children]
    for step in steps:
        assert await nodes.on("a", table, *step) == "DONE"
        await nodes.read(table, letters="a")
        sizes.append(sum(written))
    return sizes[1] - sizes[0], sizes[-1] - sizes[0]


@pytest.mark.parametrize("ranges", [100, 3_000])
async def test_a_split_writes_at_most_2_kib(autojump_clock, ranges):
    """The division writes that much to a server that asks for it; settling the children is two more transactions."""
    async with quiet(founded="abc") as nodes:
        keys = [b"", *(b"%016d" % number for number in range(1, ranges))]
        table = (await nodes["a"].catalogue.create(WantedTable("t", RANGE, 3, keys), bytes(20))).id
        await nodes.read(table, letters="a")
        written, synced = [], nodes.witness.synced

        def count(disk, records):
            if disk is nodes.nodes["a"].disk:
                written.append(sum(len(key) + len(value or b"") for key, value in records))
            synced(disk, records)

        nodes.witness.synced = count
        found = [await split(nodes, table, key, written) for key in nodes.random.sample(keys, SPLITS)]
    _, *found = found  # The first one also writes the first map, which was not decided at the server before.
    assert max(divided for divided, _ in found) <= 2 << 10, found
    assert max(whole for _, whole in found) <= 5 << 10, found
