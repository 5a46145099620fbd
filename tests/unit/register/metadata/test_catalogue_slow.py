"""Slow tests of the catalogue; the fast ones are in `test_catalogue.py`."""

from __future__ import annotations

import pytest

from gossipkv.errors import Unavailable
from gossipkv.register.metadata.catalogue import WantedTable
from gossipkv.register.metadata.operations import Operation
from gossipkv.register.metadata.partitions import HASH, shard_key
from gossipkv.register.metadata.tree import LIFE
from gossipkv.register.space import MAP
from tests.unit.register.metadata.quiet_nodes import quiet
from tests.world.metadata.deciding_node import CATALOGUE


def wanted(name="t", replication=1):
    return WantedTable(name, HASH, replication, [shard_key(0)])


async def test_a_creation_that_is_lost(autojump_clock):
    """The pages of a lost creation go once no operation can name them any more, and not before."""
    async with quiet() as nodes:
        await nodes.found()
        nodes.deaf.add(("c", "register"))
        nodes.asked.clear()
        with pytest.raises(Unavailable, match="storing the first map"):
            await nodes["a"].catalogue.create(wanted(), bytes(20), 3)
        nodes.deaf.clear()

        def lost(letter):
            return {key[1:17] for key in nodes[letter].store.disk.records if key[:1] == MAP} - {CATALOGUE}

        assert all(lost(letter) for letter in "abc")
        for done in range(2 * LIFE + 2):
            if done in (0, 1, LIFE):
                for letter in "abc":
                    await nodes[letter].catalogue.tend()
                assert all(lost(letter) for letter in "abc")
            base = nodes["a"].metadata.known[CATALOGUE].config
            operation = Operation(nodes.random.randbytes(20), base, "remove_table", 1, (b"none", bytes(16)))
            await nodes["a"].metadata.transact(CATALOGUE, [operation], 5)
            await nodes["a"].metadata.quorum_read(CATALOGUE)
        for letter in "abc":
            await nodes[letter].catalogue.tend()
        assert not any(lost(letter) for letter in "abc")
        assert nodes["b"].catalogue.tables() == {}
