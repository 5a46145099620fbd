"""The judgement of hosts against an oracle; `tests/unit/http/test_hosts.py` has the examples."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.wire.hosts import is_expected_host
from tests.oracle import hosts as oracle

NAMES = st.lists(st.sampled_from([b"localhost", b"n1.example.org", b"n1", b"::1", b"0.0.0.0"]), max_size=3)
PARTS = [
    b"localhost",
    b"LocalHost",
    b"n1",
    b".example.org",
    b"127.0.0.1",
    b"[::1]",
    b"[",
    b"]",
    b".",
    b":",
    b":80",
    b"1",
]
HOSTS = st.lists(st.sampled_from(PARTS) | st.binary(max_size=2), max_size=5).map(b"".join)


@given(HOSTS, NAMES)
def test_a_host_is_expected_as_the_oracle_says(host: bytes, names: list[bytes]) -> None:
    joined = b" ".join(names)
    assert is_expected_host(host, joined) == oracle.is_expected(host, joined)
