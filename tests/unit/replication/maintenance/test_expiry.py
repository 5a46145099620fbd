"""The rows that replicas give to merges, and the filter that reads them."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.replication._replication import ExpiryFilter
from gossipkv.replication.maintenance.expiry import rows_of
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.replica.smeared import KEEPS_MS
from tests.oracle import expiry as oracle
from tests.oracle import record
from tests.unit.replication.memory import Cluster

ALL = b"", b"\xff"
SPACE = (3).to_bytes(4, "big")
TTL_MS = 1000

origins = st.integers(1, 4)
times = st.integers(0, 60) | st.integers((1 << 64) - 60, (1 << 64) - 1)
keys = st.binary(max_size=3).map(SPACE.__add__) | st.sampled_from([b"a", b"b", b"c"]).map((SPACE + b"\1").__add__)
clocks = st.dictionaries(origins, st.integers(0, 4))
bounds = st.lists(keys, unique=True, max_size=6).map(sorted)
fields = st.tuples(
    st.integers(0, 60 << 16), origins, st.integers(1, 5), st.just(record.EXPIRING), st.binary(max_size=2),
    st.binary(max_size=3), times.filter(bool),
).map(record.encode)  # fmt: skip
others = st.tuples(st.just(9), origins, st.just(1), st.just(record.PUT), st.just(b""), st.just(b"v"), st.just(0)).map(
    record.encode
)


@given(bounds, st.data(), st.lists(st.tuples(keys, fields | others | st.binary(max_size=40)), max_size=20))
def test_the_filter_is_its_oracle(edges, data, records):
    rows = [
        oracle.Row(
            first, end, data.draw(clocks), data.draw(st.none() | st.tuples(origins)), data.draw(st.integers(0, 60))
        )
        for first, end in zip(edges[::2], edges[1::2], strict=False)
    ]
    now_ms, default_ms = data.draw(st.integers(30, 70)), data.draw(st.integers(0, 60))
    packed = [msgpack.packb((b"", b"", b"", None, default_ms))]
    for row in data.draw(st.permutations(rows)):
        named = None if row.named is None else clock.named(b"", row.named)
        packed.append(msgpack.packb((row.first, row.end, clock.of(sorted(row.settled.items())), named, row.horizon_ms)))
    found = ExpiryFilter(now_ms, b"".join(packed))
    for key, value in records:
        expected = oracle.leaves_at(rows, default_ms, now_ms, key, value)
        assert found.leaves_at(key, value) == expected


def leaves(node, key=b"a"):
    """Return the time from which a node's record may leave, by the node's own rows."""
    copy = node.copy
    packed = b"".join(rows_of(node.replicas, ALL))
    return ExpiryFilter(node.now_ms(), packed).leaves_at(
        copy.space.to_bytes(4, "big") + b"\1" + key, node.spaces[copy.space][b"\1" + key]
    )


def expiring(cluster, *nodes):
    """Write an expiring record; deliver it to all nodes, or to `nodes`, and let it expire long ago."""
    one = cluster.nodes[0]
    for node in cluster.nodes:
        if nodes and node not in nodes:
            cluster.cut(node)
    one.replicas.originate({one.copy: [RecordWrite(b"a", b"v", expiry=-TTL_MS)]})
    cluster.pass_s(90.0)


def test_a_record_that_all_have_may_leave():
    """It may leave once `max_clock_skew` has passed since its expiry, and readers then get the config."""
    cluster = Cluster()
    one = cluster.nodes[0]
    one.replicas.originate({one.copy: [RecordWrite(b"a", b"v", expiry=-TTL_MS)]})
    written_ms = one.now_ms()
    cluster.pass_s(30.0)
    at_ms = leaves(one)
    assert abs(at_ms - (written_ms + TTL_MS + one.replicas.skew.most_ms)) < 10
    cluster.pass_s(60.0)
    one.copy.taken_config = 0
    assert leaves(one) == 0
    assert one.copy.taken_config == one.copy.config


def test_a_record_that_a_replica_lacks_stays():
    """An older record without expiry would come back from there."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    expiring(cluster, one, two)
    assert leaves(one) > one.now_ms()
    assert leaves(two) > two.now_ms()
    cluster.connect(three)
    cluster.pass_s(0.5)
    assert leaves(one) == 0


def test_a_record_that_one_clock_still_shows_stays():
    """The clock of a host is five minutes slow, so it answers with the record."""
    cluster = Cluster()
    one, _, three = cluster.nodes
    three.skew_s = -300.0
    expiring(cluster)
    assert leaves(one) > one.now_ms()


def test_a_record_of_an_origin_that_has_ended_may_leave():
    """It may leave once all hosts have adopted the map."""
    cluster = Cluster(4)
    gone, one, *_ = cluster.nodes
    expiring(cluster)
    hosts = [host for host in one.copy.hosts if host.node != gone.uuid]
    cluster.cut(gone)
    cluster.nodes.remove(gone)
    leave = []
    for node in cluster.nodes:
        node.replicas.place(node.copy.identity, 2, hosts)
        cluster.run()
        cluster.pass_s(0.5)
        leave.append(leaves(one) == 0)
    assert leave == [False, False, True]


def test_a_map_that_is_not_synced_lets_nothing_leave():
    """After a power loss the old map would hold, with a host that has not confirmed the record."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    expiring(cluster, one, two)
    hosts = [host for host in one.copy.hosts if host.node != three.uuid]
    two.replicas.place(two.copy.identity, 2, hosts)
    cluster.run()
    cluster.pass_s(0.5)
    one.replicas.place(one.copy.identity, 2, hosts)
    assert leaves(one) > one.now_ms()
    cluster.run()
    cluster.pass_s(0.5)
    assert leaves(one) == 0


@pytest.mark.parametrize("late_s", [-1.0, 1.0])
def test_in_smeared_tables_records_stay_for_an_hour(late_s):
    """A put that was accepted before may come as late as half an hour, also if the expiry was in the past."""
    cluster = Cluster()
    one = cluster.nodes[0]
    one.copy.rules = one.copy.rules._replace(smears=True)
    one.replicas.originate({one.copy: [RecordWrite(b"a", b"v", expiry=1)]})
    cluster.pass_s(1.0)
    skew = one.replicas.skew
    cluster.now += KEEPS_MS / 1000 + skew.most_ms / 1000 + late_s
    assert (leaves(one) == 0) == (late_s > 0)
