"""Requests with a config: an older one than the partition's is refused, a newer one than the node's waits."""

from __future__ import annotations

import pytest

from gossipkv.errors import NotReady, StaleConfig
from tests.unit.table.hopping import Hopping
from tests.unit.table.record_nodes import CONFIG

READS = [["get", b"1"], ["get_many", [b"1", b"2"]], ["scan"]]
WRITES = [["put", b"1", b"v"], ["delete", b"1"], ["put_many", [[b"1", b"v"]]]]
ONE = {"level": "one"}


@pytest.fixture
def world():
    """Return nodes of which one has written."""
    world = Hopping(0)
    world.records.nodes[0].call("put", "hash", b"1", b"v", ONE)
    return world


@pytest.mark.parametrize("asked", READS + WRITES)
def test_an_older_map_than_the_partition_s(world, asked):
    """The answer has the node's config, and nothing is read or applied."""
    method, *params = asked
    level = ONE if asked in WRITES else {}
    for node in world.records.nodes:
        with pytest.raises(StaleConfig) as caught:
            node.call(method, "hash", *params, {"config": CONFIG - 1, **level})
        assert caught.value.details == {"config": CONFIG}
        assert node.call(method, "hash", *params, {"config": CONFIG, **level})


@pytest.mark.parametrize("asked", READS)
def test_a_read_by_a_newer_map_than_the_node_s(world, asked):
    """The node looks for the map as long as it may wait, then answers; the config is no promise about seen records."""
    method, *params = asked
    one = world.records.nodes[0]
    expected = one.call(method, "hash", *params)
    assert one.call(method, "hash", *params, {"config": CONFIG + 1}) == expected
    answers = one.begin(method, "hash", *params, {"config": CONFIG + 1, "wait_ms": 500})
    table = one.methods.routing.route("hash").table.id
    assert (answers, {*one.looked}) == ([], {table})
    began = world.records.now
    world.records.renew("hash", CONFIG + 1)
    world.records.pass_s(0.1)
    assert len(answers) == 1
    assert world.records.now - began < 0.5


@pytest.mark.parametrize("asked", WRITES)
def test_a_write_by_a_newer_map_than_the_node_s(world, asked):
    """The write is applied once the node has the map, and never if the map is late."""
    method, *params = asked
    one = world.records.nodes[0]
    for options in ({}, {"wait_ms": 100}):
        with pytest.raises(NotReady) as caught:
            one.call(method, "hash", *params, {"config": CONFIG + 1, **ONE, **options})
        assert caught.value.details == {"waits_for": "map", "config": CONFIG}
    answers = one.begin(method, "hash", *params, {"config": CONFIG + 1, "wait_ms": 500, **ONE})
    world.records.renew("hash", CONFIG + 1)
    world.records.pass_s(0.1)
    assert [type(answer) for answer in answers] == [bytes]
