"""`get_many` of any number of keys: cut into frames, from one version, by both clients."""

from __future__ import annotations

import msgpack
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import gossipkv
from gossipkv.client import blocking, parts
from gossipkv.client._requests import Request, get_many_request
from gossipkv.client._session import Session
from gossipkv.errors import NotReady, ProtocolError, TooLarge, UnknownVersion
from tests.unit.client.fake_node import Connection, FakeNode

GEO = b"\xa3geo"


def value_of(key: bytes) -> bytes | None:
    """What the node of these tests has under a key."""
    return None if key.endswith(b"7") else key * 2


class Node:
    """Answers `get_many` from the versions it has; over `limit` bytes an answer is TOO_LARGE.

    `switches`: after so many answers the versions are these.
    """

    def __init__(self, limit: int = 1 << 20, switches: dict[int, list[str]] | None = None) -> None:
        self.limit = limit
        self.switches = switches or {}
        self.versions = ["v1"]
        self.asked: list[tuple[int, str | None]] = []

    def __call__(self, connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            message_id, method, params = request
            assert method == "get_many"
            result, error = self.answer(params[1], params[2] if len(params) > 2 else {})
            connection.answer(message_id, result, error)

    def answer(self, keys: list[bytes], options: dict[str, str]) -> tuple[object, object]:
        self.versions = self.switches.get(len(self.asked), self.versions)
        self.asked.append((len(keys), options.get("version")))
        version = options.get("version", self.versions[-1])
        if version not in self.versions:
            return None, ["UNKNOWN_VERSION", "gone", {"held": self.versions}]
        values = [value_of(key) for key in keys]
        size = sum(len(value) for value in values if value is not None)
        if size > self.limit:
            return None, ["TOO_LARGE", "the answer", {"limit": self.limit, "size": size}]
        return [values, version], None


def ask_blocking(node: FakeNode, keys: list[bytes], **options: str) -> tuple[list[bytes | None], str]:
    """By the blocking client."""
    with blocking.connect(node.address, timeout_ms=20_000) as client:
        return client.dataset("geo").get_many_with_version(keys, **options)


def ask_trio(node: FakeNode, keys: list[bytes], **options: str) -> tuple[list[bytes | None], str]:
    """By the client under Trio."""

    async def ask() -> tuple[list[bytes | None], str]:
        async with gossipkv.connect(node.address, timeout_ms=20_000) as client:
            return await client.dataset("geo").get_many_with_version(keys, **options)

    return trio.run(ask)


both = pytest.mark.parametrize("ask", [ask_blocking, ask_trio])
KEYS = [b"key%d" % number for number in range(25_000)]


@both
def test_what_fits_is_one_request(ask):
    """Up to the bound there is one frame; one key more, and there are two."""
    node = Node()
    with FakeNode(node) as listening:
        assert ask(listening, KEYS[:10_000]) == (list(map(value_of, KEYS[:10_000])), "v1")
        assert node.asked == [(10_000, None)]
        assert ask(listening, KEYS[:10_001]) == (list(map(value_of, KEYS[:10_001])), "v1")
        assert node.asked[1:] == [(10_000, None), (1, "v1")]


@both
def test_long_keys_are_cut_by_size(ask):
    """A frame has at most a mebibyte of keys, but one key at least."""
    keys = [bytes([number]) * 300_000 for number in range(65, 70)] + [b"k" * 2_000_000, b"last"]
    node = Node(limit=1 << 30)
    with FakeNode(node) as listening:
        assert ask(listening, keys) == (list(map(value_of, keys)), "v1")
    assert node.asked == [(3, None), (2, "v1"), (1, "v1"), (1, "v1")]


@both
def test_an_answer_that_is_too_large_is_asked_in_halves(ask):
    """The parts shrink until they are answered, and grow again."""
    node = Node(limit=8_000)
    with FakeNode(node) as listening:
        assert ask(listening, KEYS[:3_000]) == (list(map(value_of, KEYS[:3_000])), "v1")
    assert node.asked[:4] == [(3_000, None), (1_500, None), (750, None), (938, "v1")]
    assert {version for _, version in node.asked[3:]} == {"v1"}
    assert len(node.asked) < 20


@both
def test_one_value_that_is_too_large(ask):
    """Halving ends at one key; then the node's error is the caller's."""
    node = Node(limit=100)
    with FakeNode(node) as listening, pytest.raises(TooLarge):
        ask(listening, [b"a", b"b", b"c" * 51, b"d"])
    assert node.asked[-1] == (1, "v1")
    with FakeNode(node) as listening, pytest.raises(TooLarge):
        ask(listening, [b"c" * 51])


@both
def test_a_version_that_is_retired_meanwhile(ask):
    """Everything is asked anew of the newer version: values of two versions are never mixed."""
    node = Node(switches={1: ["v1", "v2"], 2: ["v2"]})
    with FakeNode(node) as listening:
        assert ask(listening, KEYS) == (list(map(value_of, KEYS)), "v2")
    assert node.asked == [
        (10_000, None), (10_000, "v1"), (5_000, "v1"),
        (10_000, None), (10_000, "v2"), (5_000, "v2"),
    ]  # fmt: skip


@both
def test_a_version_that_is_retired_again_and_again(ask):
    """After a few attempts the node's error is the caller's; so it is at once if the caller named the version."""
    node = Node(switches={number: [f"v{number}"] for number in range(99)})
    with FakeNode(node) as listening, pytest.raises(UnknownVersion):
        ask(listening, KEYS)
    assert len(node.asked) == 2 * parts.ATTEMPTS
    node = Node(switches={1: ["v2"]})
    with FakeNode(node) as listening, pytest.raises(UnknownVersion):
        ask(listening, KEYS, version="v1")
    assert node.asked == [(10_000, "v1"), (10_000, "v1")]


def answered(reading, reply) -> tuple[list[bytes | None], str]:
    """Run the sans-io generator against a function from request size to answer."""
    try:
        request = next(reading)
        while True:
            reply(request)
            request = reading.send(request.result) if request.error is None else reading.throw(request.error)
    except StopIteration as end:
        return end.value


def sized(request: Request, result: object, error: object) -> None:
    """Give a request its answer, through a session as it happens."""
    session = Session()
    session.send(request)
    session.receive(msgpack.packb([1, 0, error, result]))
    assert request.is_done


@given(limit=st.integers(36, 400), sizes=st.lists(st.integers(0, 18), min_size=1, max_size=40), most=st.integers(1, 50))
def test_every_cut_gives_every_value_once(limit, sizes, most):
    """Whatever the sizes and the limit: the values are those of the keys, in order."""
    node = Node(limit=limit)
    keys = [b"x" * size for size in sizes]

    def reply(request: Request) -> None:
        session_keys = asked_keys(request)
        sized(request, *node.answer(session_keys, {"version": "v1"}))

    assert answered(parts.in_parts(GEO, keys, None, most=most), reply) == (list(map(value_of, keys)), "v1")


def asked_keys(request: Request) -> list[bytes]:
    """The keys in a request's frame."""
    session = Session()
    session.send(request)
    keys = msgpack.unpackb(session.take_output())[3][1]
    session.withdraw(request)
    return keys


def test_another_version_than_was_asked_for_is_refused():
    """A node that answers a pinned part from another version breaks the protocol."""

    def reply(request: Request) -> None:
        sized(request, [[b"v"] * len(asked_keys(request)), f"v{len(asked)}"], None)
        asked.append(request)

    asked: list[Request] = []
    with pytest.raises(ProtocolError, match="was answered from"):
        answered(parts.in_parts(GEO, [b"a", b"b"], None, most=1), reply)


def test_an_error_of_a_part_is_the_callers():
    """What is neither too large nor a retired version ends the reading."""

    def reply(request: Request) -> None:
        sized(request, None, ["NOT_READY", "building", {}])

    with pytest.raises(NotReady):
        answered(parts.in_parts(GEO, [b"a"], None), reply)


def test_no_keys_are_one_request():
    """Nothing asked is asked of the node all the same: there may be no such database."""
    assert parts.whole(GEO, [], None).method == "get_many"
    assert get_many_request(GEO, []).size_bytes < 100
