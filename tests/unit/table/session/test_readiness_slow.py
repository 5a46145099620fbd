"""Tests that cost seconds; `test_readiness.py` has the others."""

from __future__ import annotations

import pytest

from gossipkv.errors import TooLarge
from gossipkv.gossip.member import MemberState
from gossipkv.replication.replica import clock
from gossipkv.table.session.token import TableSeen, decode, encode, left_out
from tests.unit.table.record_nodes import CONFIG, TOKEN_KEYS, Records

ONE = {"level": "one"}


@pytest.fixture
def long():
    """Return a node without replicas of a table of 100 partitions, and a session that wrote to all of them."""
    records = Records(4)
    records.make("t", firsts=100, holders=lambda _: records.nodes[:3])
    token = b""
    one, two, three, asked = records.nodes
    for number in range(400):
        token = one.call("put", "t", b"%d" % number, b"", {"token": token, **ONE})
    return records, asked, token, (one, two, three)


def settle(one, two, three):
    """Report to the first node that the others have all its records."""
    for identity, copy in one.replicas.by_partition.items():
        for other in (two, three):
            one.hears(copy, other.replicas.by_partition[identity], copy.synced)


def test_a_long_token_is_made_short(long):
    """Above a kibibyte, hosts are first asked for the settled clocks, at most once a second per table."""
    records, asked, token, hosts = long
    assert len(token) > 1 << 10
    for count in (1, 1, 1):
        assert asked.call("get", "t", b"7", {"token": token})[0] == b""
        assert sum(node.asked.count("table_settled") for node in hosts) == count
    settle(*hosts)
    records.pass_s(1.0)
    for node in hosts[1:]:
        node.is_lost = True
    _, token = asked.call("get", "t", b"7", {"token": token})
    assert {seen.clock for seen in decode(token, TOKEN_KEYS).values()} == {left_out(CONFIG)}


def test_what_has_ended_is_left_out_of_a_long_token(long):
    """If the map does not name an assignment, all replicas of this map have all its records."""
    _, asked, token, _ = long
    ((table, seen),) = decode(token, TOKEN_KEYS).items()
    more = encode({table: TableSeen(seen.config, clock.merge(seen.clock, clock.of([(1 << 62, 7)])))}, TOKEN_KEYS)
    _, after = asked.call("get", "t", b"7", {"token": more})
    assert decode(after, TOKEN_KEYS) == {table: TableSeen(CONFIG, clock.merge(seen.clock, left_out(seen.config)))}


def test_what_most_have_is_not_settled(long):
    """Every assigned replica counts, dead or alive, since a returning one may lack records that the session saw."""
    _, _, token, (one, two, three) = long
    for identity, copy in one.replicas.by_partition.items():
        one.hears(copy, two.replicas.by_partition[identity], copy.synced)
    _, after = one.call("get", "t", b"7", {"token": token})
    assert decode(after, TOKEN_KEYS) == decode(token, TOKEN_KEYS)
    settle(one, two, three)
    _, after = one.call("get", "t", b"7", {"token": token})
    assert {seen.clock for seen in decode(after, TOKEN_KEYS).values()} == {left_out(CONFIG)}


@pytest.mark.parametrize("request_", [["get", b"7"], ["put", b"7", b"v"], ["scan"]])
def test_a_token_that_stays_too_long(long, request_):
    """The error TOO_LARGE names the node that is down, and nothing is originated."""
    _, asked, token, (one, _, three) = long
    asked.methods._services.tokens._max_token = 1 << 10
    three.state = MemberState.DEAD
    before = {copy: copy.appended for copy in one.replicas.by_partition.values()}
    method, *params = request_
    with pytest.raises(TooLarge, match="replicas that are down: n3") as caught:
        asked.call(method, "t", *params, {"token": token})
    assert caught.value.details["down"] == ["n3"]
    assert before == {copy: copy.appended for copy in one.replicas.by_partition.values()}
