"""Slow tests of reads in parts; the fast ones are in `test_parts.py`."""

from __future__ import annotations

import pytest
import trio

import gossipkv
from gossipkv.client import blocking, parts
from gossipkv.errors import TooLarge, UnknownVersion
from tests.unit.client.fake_node import FakeNode
from tests.unit.client.parts_node import Node, value_of


def ask_blocking(node: FakeNode, keys: list[bytes], **options: str) -> tuple[list[bytes | None], str]:
    with blocking.connect(node.address, timeout_ms=20_000) as client:
        return client.dataset("geo").get_many_with_version(keys, **options)


def ask_trio(node: FakeNode, keys: list[bytes], **options: str) -> tuple[list[bytes | None], str]:
    async def ask() -> tuple[list[bytes | None], str]:
        async with gossipkv.connect(node.address, timeout_ms=20_000) as client:
            return await client.dataset("geo").get_many_with_version(keys, **options)

    return trio.run(ask)


both = pytest.mark.parametrize("ask", [ask_blocking, ask_trio])
KEYS = [b"key%d" % number for number in range(25_000)]


@both
def test_what_fits_is_one_request(ask):
    """The bound fits into one frame; one more key needs a second."""
    node = Node()
    with FakeNode(node) as listening:
        assert ask(listening, KEYS[:10_000]) == (list(map(value_of, KEYS[:10_000])), "v1")
        assert node.asked == [(10_000, None)]
        assert ask(listening, KEYS[:10_001]) == (list(map(value_of, KEYS[:10_001])), "v1")
        assert node.asked[1:] == [(10_000, None), (1, "v1")]


@both
def test_long_keys_are_cut_by_size(ask):
    """A frame has at most 1 MiB of keys, but at least one key."""
    keys = [bytes([number]) * 300_000 for number in range(65, 70)] + [b"k" * 2_000_000, b"last"]
    node = Node(limit=1 << 30)
    with FakeNode(node) as listening:
        assert ask(listening, keys) == (list(map(value_of, keys)), "v1")
    assert node.asked == [(3, None), (2, "v1"), (1, "v1"), (1, "v1")]


@both
def test_an_answer_that_is_too_large_is_asked_in_halves(ask):
    """Parts shrink until they are answered, and grow again."""
    node = Node(limit=8_000)
    with FakeNode(node) as listening:
        assert ask(listening, KEYS[:3_000]) == (list(map(value_of, KEYS[:3_000])), "v1")
    assert node.asked[:4] == [(3_000, None), (1_500, None), (750, None), (938, "v1")]
    assert {version for _, version in node.asked[3:]} == {"v1"}
    assert len(node.asked) < 20


@both
def test_one_value_that_is_too_large(ask):
    """Halving ends at one key; then the caller gets the node's error."""
    node = Node(limit=100)
    with FakeNode(node) as listening, pytest.raises(TooLarge):
        ask(listening, [b"a", b"b", b"c" * 51, b"d"])
    assert node.asked[-1] == (1, "v1")
    with FakeNode(node) as listening, pytest.raises(TooLarge):
        ask(listening, [b"c" * 51])


@both
def test_a_version_that_is_retired_meanwhile(ask):
    """All keys are read again from the newer version; values of two versions are never mixed."""
    node = Node(switches={1: ["v1", "v2"], 2: ["v2"]})
    with FakeNode(node) as listening:
        assert ask(listening, KEYS) == (list(map(value_of, KEYS)), "v2")
    assert node.asked == [
        (10_000, None), (10_000, "v1"), (5_000, "v1"),
        (10_000, None), (10_000, "v2"), (5_000, "v2"),
    ]  # fmt: skip


@both
def test_a_version_that_is_retired_again_and_again(ask):
    """After a few attempts the caller gets the node's error; with a chosen version at once."""
    node = Node(switches={number: [f"v{number}"] for number in range(99)})
    with FakeNode(node) as listening, pytest.raises(UnknownVersion):
        ask(listening, KEYS)
    assert len(node.asked) == 2 * parts.ATTEMPTS
    node = Node(switches={1: ["v2"]})
    with FakeNode(node) as listening, pytest.raises(UnknownVersion):
        ask(listening, KEYS, version="v1")
    assert node.asked == [(10_000, "v1"), (10_000, "v1")]
