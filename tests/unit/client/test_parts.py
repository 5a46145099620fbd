"""`get_many` of any number of keys is cut into frames and reads one version, in both clients."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.client import parts
from gossipkv.client._client import Column, Request, Session, get_many_request
from gossipkv.errors import NotReady, ProtocolError
from tests.unit.client.columns import values_of
from tests.unit.client.parts_node import Node, value_of

GEO = b"\xa3geo"


def answered(reading, reply) -> tuple[list[bytes | None], str]:
    """Run the sans-io generator with a function that answers each request."""
    try:
        request = next(reading)
        while True:
            reply(request)
            request = reading.send(request.result) if request.error is None else reading.throw(request.error)
    except StopIteration as end:
        return end.value


def sized(request: Request, result: object, error: object) -> None:
    """Deliver an answer to a request through a session."""
    session = Session()
    session.send(request)
    session.receive(msgpack.packb([1, 0, error, result]))
    assert request.is_done


@given(
    limit=st.integers(36, 400),
    sizes=st.lists(st.integers(0, 18), min_size=1, max_size=40),
    most=st.integers(1, 50),
    columns=st.booleans(),
)
def test_every_cut_gives_every_value_once(limit, sizes, most, columns):
    """For any sizes and limit the values come in the order of the keys."""
    node = Node(limit=limit)
    keys = [b"x" * size for size in sizes]

    def reply(request: Request) -> None:
        session_keys = asked_keys(request)
        sized(request, *node.answer(session_keys, {"version": "v1"}))

    values, version = answered(parts.reading(GEO, keys, {}, most=most, into="arrow" if columns else None), reply)
    assert isinstance(values, Column) is columns
    assert (values_of(values), version) == (list(map(value_of, keys)), "v1")


def asked_keys(request: Request) -> list[bytes]:
    session = Session()
    session.send(request)
    keys = msgpack.unpackb(session.take_output())[3][1]
    session.withdraw(request)
    return keys


def test_another_version_than_was_asked_for_is_refused():
    """A different version in the answer to a pinned part breaks the protocol."""

    def reply(request: Request) -> None:
        sized(request, [[b"v"] * len(asked_keys(request)), f"v{len(asked)}"], None)
        asked.append(request)

    asked: list[Request] = []
    with pytest.raises(ProtocolError, match=r"get_many for version .* from version"):
        answered(parts.reading(GEO, [b"a", b"b"], {}, most=1), reply)


def test_an_error_of_a_part_is_the_callers():
    """Other errors than a size or a retired version end the read."""

    def reply(request: Request) -> None:
        sized(request, None, ["NOT_READY", "building", {}])

    with pytest.raises(NotReady):
        answered(parts.reading(GEO, [b"a"], {}), reply)


def test_no_keys_are_one_request():
    """An empty read still asks the node, since the database may not exist."""
    assert next(parts.reading(GEO, [], {})).method == "get_many"
    assert get_many_request(GEO, []).size_bytes < 100
