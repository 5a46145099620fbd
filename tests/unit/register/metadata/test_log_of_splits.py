"""A split writes little to a server's log, and hardly more in a larger map."""

from __future__ import annotations

from collections import Counter

import pytest

from gossipkv.register.metadata.catalogue import WantedTable
from gossipkv.register.metadata.known import KNOWN
from gossipkv.register.metadata.pages import BRANCH, IDS, LEAF, ROOT, OperationOutcome
from gossipkv.register.metadata.partitions import RANGE, decode_partition
from gossipkv.register.space import MAP, RECORD
from tests.unit.register.metadata.few_nodes import FakeBatch, FewNodes, founded

SPLITS = 12
KINDS = {ROOT: "roots", LEAF: "leaves", IDS: "ids", BRANCH: "branches"}


def cause_of(key, value):
    """Return the cause of a record of a server's space."""
    if key[:1] == MAP:
        return KINDS[value[1]] if value is not None and len(value) > 8 else "pins and deletions"
    return {RECORD: "register", KNOWN: "known heads"}.get(key[:1], "positions")


class Counted:
    """The bytes of keys and values that a store has written since `take`, by cause."""

    def __init__(self, store):
        self.causes, self._write = Counter(), store.write
        store.write = self.write

    async def write(self, batch):
        for key, value in batch.operations:
            self.causes[cause_of(key, value)] += len(key) + len(value or b"")
        return await self._write(batch)

    def take(self):
        found, self.causes = self.causes, Counter()
        return found


async def do(server, table, name, *argument):
    """Run an operation alone, and wait for its head to be known."""
    answer = await server.on(table, name, *argument)
    assert answer.outcome is OperationOutcome.DONE, answer
    await server.metadata.quorum_read(table)


async def split(server, table, key, log):
    """Divide a range, and settle its children; return the bytes of the division and of all of it, by cause."""
    parent = decode_partition(server.metadata.tree(table).get(key).record)
    random = server.world.random
    children = tuple(
        (first, random.getrandbits(63), tuple(random.getrandbits(63) for _ in parent.assignments))
        for first in (key, key + b"\0")
    )
    log.take()
    await do(server, table, "divide", key, parent.id, children)
    divided = log.take()
    for first, child, _ in children:
        await do(server, table, "settle", first, child, tuple((one.id, 0) for one in parent.assignments))
    return divided, divided + log.take()


@pytest.mark.parametrize("ranges", [100, 1_000, 10_000])
async def test_a_split_writes_at_most_8_kib(autojump_clock, monkeypatch, ranges):
    """The division writes that much to a server that asks for it; settling the children is two more transactions."""
    monkeypatch.setattr("gossipkv.register.space.Batch", FakeBatch)
    world = FewNodes()
    async with world.running():
        await founded(world)
        server = world["a"]
        keys = [b"", *(b"%016d" % number for number in range(1, ranges))]
        table = (await server.catalogue.create(WantedTable("t", RANGE, 3, keys), bytes(20))).id
        await server.metadata.quorum_read(table)
        log = Counted(server.store)
        found = [await split(server, table, key, log) for key in world.random.sample(keys, SPLITS)]
    assert max(divided.total() for divided, _ in found) <= 8 << 10, found
    assert sum(whole.total() for _, whole in found) / SPLITS <= 24 << 10, found
