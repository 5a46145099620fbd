"""A node refuses a change that arrives after its deadline, by the node's own clock."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.access.rights import METHODS, Right
from gossipkv.errors import TimedOut, Unknown
from gossipkv.keyspace.time_key import TimeKey
from gossipkv.register.metadata.partitions import RANGE
from gossipkv.replication.replica.hlc import LATELY_S, ClockSkew, ms_of
from gossipkv.table.peers.peer_client import CHANGES
from tests.unit.table.record_nodes import TOKEN, Records

PAGE = (Path(__file__).parents[3] / "docs/development/replication.md").read_text(encoding="utf-8")
KEY, LATE_S = b"key", [0.6, 6.0, 31.0]
WRITES = {
    "put": ("put", "t", KEY, b"early"),
    "delete": ("delete", "t", KEY),
    "put_many": ("put_many", "t", [[KEY, b"early"], [b"l", b"early"]]),
    "delete_many": ("delete_many", "t", [KEY, b"l"]),
    "delete_range": ("delete_range", "t", {"prefix": KEY}),
}
NOW = {"timeout_ms": 500, "level": "one"}


def cluster(hosts, *, off_s=0.0):
    """Return hosts of the only partition of `t` with wrong clocks, and a node that forwards to them."""
    records = Records(hosts + 1)
    records.now = 1000.0
    *holders, entry = records.nodes
    records.make("t", firsts=1, holders=lambda _: holders)
    for host in holders:
        host.skew_s = off_s
        entry.replicas.skew.hears(host.uuid, host.now_ms(), records.now)
    return records, holders, entry


def let_come(records, host):
    held, host.held = host.held, None
    records.soon += held
    records.run()


@pytest.mark.parametrize("off_s", [-40.0, 0.0, 40.0])
@pytest.mark.parametrize("late_s", LATE_S)
@pytest.mark.parametrize("method", WRITES)
def test_a_late_write_undoes_nothing(method, late_s, off_s):
    """A later write stays, however late the request comes and whatever the host's clock says."""
    records, (host,), entry = cluster(1, off_s=off_s)
    host.held = []
    assert isinstance(entry.outcome(*WRITES[method], NOW), Unknown)
    records.pass_s(late_s - 0.5)
    assert host.call("put", "t", KEY, b"later", {"level": "one"}) == TOKEN
    let_come(records, host)
    assert host.call("get", "t", KEY)[0] == b"later"


@pytest.mark.parametrize("off_s", [-40.0, 0.0, 40.0])
@pytest.mark.parametrize("method", WRITES)
def test_what_comes_in_time_is_written(method, off_s):
    """The requests arrive just before the deadline."""
    records, (host,), entry = cluster(1, off_s=off_s)
    host.call("put", "t", KEY, b"before", {"level": "one"})
    host.held, answers = [], entry.begin(*WRITES[method], NOW)
    records.pass_s(0.49)
    let_come(records, host)
    assert answers == [[1, None, TOKEN] if method == "delete_range" else TOKEN]
    assert host.call("get", "t", KEY)[0] == (None if method.startswith("delete") else b"early")


def test_a_put_that_was_smeared_is_forwarded_again_and_its_first_request_refused():
    """The first request may arrive after the put was written, deleted and its tombstone collected."""
    records = Records(2)
    host, entry = records.nodes
    records.make("s", RANGE, firsts=[b"", b"\0\0\0\0\0\0\0\1"], holders=lambda _: [host], time_key=TimeKey(0, 8, "ms"))
    assert entry.call("put", "s", bytes(8), b"v") == {"accepted": True}
    entry.replicas.skew.hears(host.uuid, host.now_ms(), records.now)
    host.held = []
    entry.accepting.drain()
    entry.accepting.look()
    records.pass_s(7.0)
    late = []
    answer, host.answer = host.answer, lambda method, params, _: answer(method, params, late.append)
    let_come(records, host)
    host.answer = answer
    assert [type(one) for one in late] == [TimedOut]
    assert host.call("get", "s", bytes(8))[0] is None


@pytest.mark.parametrize(
    ("hosts", "frozen", "outcome"), [(1, 0, TimedOut), (2, 0, TimedOut), (2, 1, Unknown), (3, 1, Unknown)]
)
def test_timeout_only_where_all_that_were_asked_refused(hosts, frozen, outcome):
    """Hosts with changed clocks refuse at once, then take the next write; a silent host makes it UNKNOWN."""
    _, holders, entry = cluster(hosts)
    for host in holders:
        host.skew_s = 30.0
    for host in holders[:frozen]:
        host.held = []
    answer = entry.outcome("put", "t", KEY, b"v", NOW)
    assert type(answer) is outcome
    assert all(host.call("get", "t", KEY, {"local": True})[0] is None for host in holders[frozen:])
    assert frozen or entry.outcome("put", "t", KEY, b"v", NOW) == TOKEN


def test_a_write_at_the_asked_node_has_the_same_deadline():
    """The node itself may have been frozen since the start of the request."""
    _, (host,), _ = cluster(1)
    assert isinstance(host.outcome("put", "t", KEY, b"v", {"timeout_ms": 0, "level": "one"}), TimedOut)
    assert host.call("get", "t", KEY)[0] is None


def test_each_method_between_nodes_is_in_the_table_of_what_comes_late():
    """The table covers the requests of peers and the forwarded requests of clients."""
    rows = [
        row.split("|")[1:3]
        for row in PAGE.split("## What comes late")[1].split("\n## ")[0].splitlines()
        if row.startswith("| `")
    ]
    by_rule = {rule.strip(): {*re.findall(r"`(\w+)`", names)} for names, rule in rows}
    between = {name.decode() for name, right in METHODS.items() if right == Right.PEER} - {"resp", "within"}
    assert {*chain(*by_rule.values())} == between | CHANGES
    assert sum(map(len, by_rule.values())) == len(between | CHANGES)
    assert next(names for rule, names in by_rule.items() if "`within`" in rule) == CHANGES


@given(
    off_ms=st.integers(-(10**6), 10**6),
    heard=st.lists(st.tuples(st.integers(0, 10**5), st.integers(0, 3000), st.integers(0, 3000)), max_size=6),
    left_s=st.floats(0, 1000),
    wait_ms=st.integers(0, 2 * 10**5),
)
def test_a_deadline_is_never_early_and_late_by_the_longest_answer(off_ms, heard, left_s, wait_ms):
    """If a clock was not heard lately, the deadline is late by at most the allowed skew."""
    now_ms, took_ms, at_ms = 10**9, 0, -(10**9)
    skew = ClockSkew(lambda: now_ms / 1000, lambda: now_ms, 1000.0)
    for pause_ms, there_ms, back_ms in heard:
        asked_ms, now_ms = now_ms + pause_ms, now_ms + pause_ms + there_ms + back_ms
        skew.hears(b"n", now_ms - back_ms + off_ms, asked_ms / 1000)
        took_ms, at_ms = max(took_ms, there_ms + back_ms), now_ms
    now_ms += wait_ms
    late_ms = ms_of(skew.deadline(b"n", left_s)) - (now_ms + off_ms + left_s * 1000)
    is_known = now_ms - at_ms <= LATELY_S * 1000 / 2
    assert -0.01 <= late_ms <= (took_ms if is_known else 2 * 10**6) + 2
