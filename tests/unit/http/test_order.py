"""The messages of a node to its gateway survive the pipe."""

from __future__ import annotations

from gossipkv.address import Address
from gossipkv.http.order import HIDING, GatewayLimits, GatewayOrder, GatewayPeer, GatewayWord, Types
from gossipkv.processes.program import order_line, read_order

TYPES = Types("text/plain", {"db": "image/png"})


def test_an_order_is_one_line_and_comes_back():
    limits = GatewayLimits(max_connections=7, idle_timeout_ms=0)
    own, here = Address("::1", 7070), Address("::1", 8080)
    order = GatewayOrder(own, 4, "n\n1", here, 5, 6, TYPES, limits, "a b", is_secured=True)
    line = order_line(order)
    assert line.count(b"\n") == 1
    assert read_order(line, GatewayOrder) == order
    assert "secret" not in repr(order)


def test_a_word_is_one_line_and_comes_back():
    for word in (GatewayWord(TYPES), GatewayWord(TYPES, 0), GatewayWord(TYPES, 10_000)):
        assert order_line(word).count(b"\n") == 1
        assert read_order(order_line(word), GatewayWord) == word


def test_who_is_at_the_other_end_stands_before_what_was_read():
    for peer in (GatewayPeer("::1", "ana"), GatewayPeer("10.0.0.1", "anonymous")):
        for begun in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\n \xff"):
            assert GatewayPeer.of(peer.before(begun)) == (peer, begun)


def test_types_of_values():
    assert (TYPES.of("db"), TYPES.of("other")) == (b"image/png", b"text/plain")


def test_what_hides_a_database_begins_with_its_name():
    """Each shadowed path is one that the database would have."""
    assert all(path.startswith(f"/{name}") for name, path in HIDING.items())
