"""Expired records of calm replicas are absent in the loop, as they are in Python."""

from __future__ import annotations

import msgpack
import pytest

from tests.unit.table.calm_nodes import made_node, put


@pytest.fixture
def calm():
    return made_node(3)


def test_expired_records_are_absent_in_the_loop(calm):
    """Gets, batches and pages of the loop and of Python agree before and after an expiry, and explain it."""
    now_ms = calm.node.now_ms()
    put(calm, "hashed", b"a01", b"one", ttl_ms=2_000)
    put(calm, "hashed", b"a02", b"two")
    for wall_ms, found in ((now_ms + 1_999, [b"one", b"two"]), (now_ms + 2_000, [None, b"two"])):
        calm.node.skew_s = (wall_ms - now_ms) / 1000
        calm.peer.driver.set_wall(wall_ms)
        assert msgpack.unpackb(calm.from_core("get_many", "hashed", [b"a01", b"a02"]))[3][0] == found
        for options in ({}, {"explain": True}):
            assert calm.is_alike("get", "hashed", b"a01", options)
        assert calm.is_alike("get_many", "hashed", [b"a01", b"a02"])
        assert calm.is_alike("scan", "hashed")


def test_an_expired_record_stays_absent_if_the_clock_is_set_back(calm):
    """The loop and Python have the same time for reads, also after another start, and at most a minute ahead."""
    calm.records.now = 100_000.0
    now_ms = calm.node.now_ms()
    skew = calm.node.replicas.skew
    put(calm, "hashed", b"a01", b"one", ttl_ms=2_000)

    def absent_at(passed_ms):
        calm.node.skew_s = passed_ms / 1000
        calm.peer.driver.set_wall(now_ms + passed_ms)
        assert calm.is_alike("get", "hashed", b"a01")
        return msgpack.unpackb(calm.from_core("get", "hashed", b"a01"))[3][0] is None

    assert [absent_at(passed_ms) for passed_ms in (0, 2_000, -18_000)] == [False, True, True]
    assert absent_at(86_400_000)
    assert not absent_at(-60_000), "a clock that was a day ahead hides no records"
    calm.node.skew_s = -58
    skew.expires_from(now_ms + 2_000)  # From the disk.
    calm.open_tables()
    calm.look()
    assert absent_at(-58_000)
