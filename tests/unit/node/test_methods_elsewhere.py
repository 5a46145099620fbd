"""Python answers requests of other nodes, and reads of partitions that other nodes have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.errors import BadRequest, Unauthorized
from gossipkv.node.peers.hello import Hello
from gossipkv.protocol import PROTOCOL_MAX, ProtocolVersions
from tests.unit.access.callers import STRANGER
from tests.unit.node.made_up_node import Node, decoded
from tests.unit.serving.driven import make_version

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.wire.rpc import Response, Value


@pytest.mark.parametrize("method", ["get", "get_many"])
def test_a_partition_that_others_have(tmp_path: Path, method: str) -> None:
    """Python asks no other node: NOT_READY makes the client ask again, and a local read is NOT_SERVED."""
    shared = make_version(tmp_path, "db", "v1", {b"a": b"1"})
    shared.wire_id = bytes(16)
    shared.files = [None]
    asked: Value = b"a" if method == "get" else [b"a"]
    node = Node((shared, True))
    assert node.refusal(method, "db", asked)[0] == "NOT_READY"
    assert node.refusal(method, "db", asked, {"local": True})[0] == "NOT_SERVED"
    alone = replace(shared, wire_id=None)
    assert Node((alone, True)).refusal(method, "db", asked)[0] == "NOT_SERVED"


def test_hello():
    """A node of this cluster gets the hello; another cluster and malformed hellos are refused."""
    node = Node()
    asked = msgpack.packb(
        [{"protocol": PROTOCOL_MAX, "cluster_id": b"c" * 8, "uuid": b"v" * 16, "epoch": 1, "more": []}]
    )
    answer = node.cluster.hello._replace(seen=b"of " + b"v" * 16).to_map()
    assert decoded(node.handlers.answer(b"hello", asked, STRANGER)).result == answer
    foreign = msgpack.packb([{"protocol": PROTOCOL_MAX, "cluster_id": b"d" * 8, "uuid": b"v" * 16, "epoch": 1}])
    assert isinstance(decoded(node.handlers.answer(b"hello", foreign, STRANGER)).error, Unauthorized)
    right = Hello(PROTOCOL_MAX, b"c" * 8, b"v" * 16, 1, 2**64 - 1, 3)
    assert decoded(node.handlers.answer(b"hello", msgpack.packb([right.to_map()]), STRANGER)).result == answer
    stores = [{**right._asdict(), name: value} for name in ("store", "life") for value in (-1, "1", b"", True)]
    short = {"protocol": 1, "cluster_id": b"c" * 8, "uuid": b"v", "epoch": 1}
    for wrong in ([], [1], [{}], [short], *([store] for store in stores)):
        assert isinstance(decoded(node.handlers.answer(b"hello", msgpack.packb(wrong), STRANGER)).error, BadRequest)


def test_the_lower_maximum_of_two_hellos_wins():
    """The answer states the version of the connection; ranges without one in common are both named."""
    node = Node()

    def greeted(oldest: int, newest: int) -> Response:
        theirs = Hello(newest, b"c" * 8, b"v" * 16, 1, min=oldest, max=newest)
        return decoded(node.handlers.answer(b"hello", msgpack.packb([theirs.to_map()]), STRANGER))

    result = greeted(PROTOCOL_MAX, PROTOCOL_MAX + 4).result
    assert isinstance(result, dict)
    assert result["protocol"] == PROTOCOL_MAX
    error = greeted(PROTOCOL_MAX + 1, PROTOCOL_MAX + 4).error
    assert isinstance(error, Unauthorized)
    assert str(ProtocolVersions(PROTOCOL_MAX + 1, PROTOCOL_MAX + 4)) in error.message
    assert str(node.cluster.hello.versions) in error.message


def test_the_direct_question():
    """Another node asks which partitions of a content are served here."""
    node = Node()
    assert node.ask("serves", "geo", b"i" * 16, "b") == {"ready": b"i" * 16 + b"geo b"}
    for wrong in (["geo"], ["geo", b"i" * 16], ["geo", 1, "b"], ["geo", b"i" * 16, "b", 1]):
        assert isinstance(decoded(node.handlers.answer(b"serves", msgpack.packb(wrong), STRANGER)).error, BadRequest)
