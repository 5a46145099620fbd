"""Requests and the heap of their deadlines."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.client import reads
from gossipkv.client._client import Deadlines, Request, Session, call_request, get_many_request, get_request
from gossipkv.client.pages import ScanPages
from gossipkv.errors import BadRequest, TimedOut, TooLarge
from gossipkv.settings.config import Config
from tests.oracle import deadlines as oracle

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20)),
        st.tuples(st.just("done"), st.integers(0, 50)),
        st.tuples(st.just("expired"), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_deadlines_are_those_of_the_oracle(steps):
    """The due requests and the next deadline agree with the oracle for any order of steps."""
    heap, slow = Deadlines(), oracle.Deadlines()
    requests: dict[int, Request] = {}
    for action, number in steps:
        if action == "add":
            request = call_request("ping", [])
            heap.add(request, float(number))
            slow.due[id(request)] = float(number)
            requests[id(request)] = request
        elif action == "done" and slow.due:
            name = list(slow.due)[number % len(slow.due)]
            requests[name].fail(None)
            del slow.due[name]
        elif action == "expired":
            found = heap.expired(float(number))
            assert [request.due for request in found] == slow.expired(float(number))
            assert not {id(request) for request in found} & slow.due.keys()
        assert (len(heap), heap.next) == (len(slow.due), slow.next())


def test_a_deadline_is_for_an_open_request():
    """Neither a completed request nor one with a deadline gets a deadline; an empty heap is never due."""
    heap = Deadlines()
    request = call_request("ping", [])
    heap.add(request, 1.0)
    with pytest.raises(ValueError, match="has a deadline"):
        heap.add(request, 2.0)
    request.fail(TimedOut("late"))
    assert heap.next == inf
    with pytest.raises(ValueError, match="is done"):
        heap.add(request, 2.0)


def test_a_request_is_done_once():
    """The first outcome stays."""
    request = call_request("put", ["t", b"k", b"v"])
    assert (request.is_done, request.is_repeatable, request.method) == (False, False, "put")
    request.fail(TimedOut("late"))
    request.fail(TimedOut("later"))
    with pytest.raises(TimedOut, match=r"late$"):
        request.take()
    assert "done" in repr(request)
    assert call_request("scan", ["geo"]).is_repeatable


@pytest.mark.parametrize("value", [2**64, object(), "\ud800"])
def test_what_messagepack_cannot_say_is_a_bad_request(value):
    """The error comes before anything is sent."""
    with pytest.raises(BadRequest, match="cannot be encoded"):
        call_request("get", ["geo", value])


@pytest.mark.parametrize(
    "key",
    ["k\xe9", bytearray(b"k\xc3\xa9"), memoryview(b"k\xc3\xa9"), memoryview(b"k_\xc3_\xa9_")[::2]],
    ids=["str", "bytearray", "memoryview", "every second byte"],
)
def test_keys_of_every_kind_are_bytes_on_the_wire(key):
    """Text and any buffer become the same bytes."""
    as_bytes = b"k\xc3\xa9"
    session, plain = Session(), Session()
    for request in (get_request(b"\xa3geo", key), get_many_request(b"\xa3geo", [key])):
        session.send(request)
    for request in (get_request(b"\xa3geo", as_bytes), get_many_request(b"\xa3geo", [as_bytes])):
        plain.send(request)
    assert session.take_output() == plain.take_output()
    bounds = [
        ScanPages("geo", reads.span_options(bound, bound, bound, reverse=False), limit=None)
        for bound in (key, as_bytes)
    ]
    for pages, asking in zip(bounds, (session, plain), strict=True):
        asking.send(pages.next_request())
    assert session.take_output() == plain.take_output()


def test_a_key_is_taken_as_it_is():
    """A caller may reuse its buffer for the next key."""
    buffer = bytearray(b"one")
    request = get_request(b"\xa3geo", memoryview(buffer))
    buffer[:] = b"two"
    session = Session()
    session.send(request)
    assert b"one" in session.take_output()


@pytest.mark.parametrize(
    "key", ["key", b"key", bytearray(b"key"), memoryview(b"key")], ids=lambda key: type(key).__name__
)
def test_one_key_is_not_several(key):
    """A single key is iterable, but never meant as several keys."""
    with pytest.raises(TypeError, match="such as a list"):
        reads.several(key)


def test_wrong_keys():
    """A key is bytes, text with a UTF-8 form, or an integer, which means its digits."""
    session, plain = Session(), Session()
    session.send(get_many_request(b"\xa3geo", [5, -7]))
    plain.send(get_many_request(b"\xa3geo", ["5", "-7"]))
    assert session.take_output() == plain.take_output()
    for wrong in (1.5, True, None):
        with pytest.raises(TypeError, match="bytes, str or int, not"):
            get_many_request(b"\xa3geo", [b"a", wrong])
    with pytest.raises(BadRequest, match="UTF-8"):
        get_request(b"\xa3geo", "\ud800")
    with pytest.raises(TypeError, match="has no constructor"):
        Request()


def test_a_request_that_no_node_would_read():
    """A frame over the maximal size of a node is refused by the client."""
    most_bytes = Config().max_frame
    largest = most_bytes - 32 - len(b"\xa3geo")
    assert get_request(b"\xa3geo", bytes(largest)).size_bytes == most_bytes
    with pytest.raises(TooLarge) as caught:
        get_request(b"\xa3geo", bytes(largest + 1))
    assert caught.value.details == {"limit": most_bytes, "size": most_bytes + 1}
    with pytest.raises(TooLarge):
        get_many_request(b"\xa3geo", [bytes(1 << 20)] * 33)
    with pytest.raises(TooLarge):
        call_request("put", [bytes(most_bytes)])
