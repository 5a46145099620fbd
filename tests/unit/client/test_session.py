"""The sans-io session, alone: any split of the stream, any order of answers, any garbage."""

from __future__ import annotations

import itertools

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.client.session import MAX_ABANDONED, Session
from gossipkv.errors import BadRequest, Corrupt, GossipKVError, NotReady, ProtocolError, UnknownDatabase


def answer(message_id: int, result: object, error: object = None) -> bytes:
    """One answer as it stands in the stream."""
    return msgpack.packb([1, message_id, error, result])


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` in pieces, cut at these places modulo its length."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


def test_a_request_is_messagepack_rpc():
    """The bytes of a request are `[0, id, method, params]` and nothing else."""
    session = Session()
    message_id, frame = session.request("get", ["geo", b"paris", {"version": "1"}])
    assert msgpack.unpackb(frame) == [0, message_id, "get", ["geo", b"paris", {"version": "1"}]]
    assert session.in_flight == 1


@given(
    results=st.lists(
        st.one_of(st.none(), st.binary(max_size=40), st.text(max_size=10), st.integers(0, 2**63)), max_size=8
    ),
    order=st.randoms(use_true_random=False),
    cuts=st.lists(st.integers(0, 10_000), max_size=12),
)
def test_every_split_and_order_gives_every_answer_once(results, order, cuts):
    """However the stream is cut and the answers ordered, each request gets its own result, once."""
    session = Session()
    wanted = {session.request("m", [])[0]: result for result in results}
    shuffled = list(wanted.items())
    order.shuffle(shuffled)
    stream = b"".join(answer(message_id, result) for message_id, result in shuffled)
    got = [found for piece in split(stream, cuts) for found in session.receive(piece)]
    assert [(found.msgid, found.result) for found in got] == shuffled
    assert all(found.error is None for found in got)
    assert session.in_flight == 0
    assert session.is_clean


def test_errors_come_back_as_their_classes():
    """An error on the wire is returned as the class that stands for its code, with message and details."""
    session = Session()
    for code, kind in (("UNKNOWN_DATABASE", UnknownDatabase), ("NOT_READY", NotReady)):
        message_id, _ = session.request("get", ["x", b"k"])
        (found,) = session.receive(answer(message_id, None, [code, "why", {"progress": 0.5}]))
        assert type(found.error) is kind
        assert (found.error.message, found.error.details) == ("why", {"progress": 0.5})
    message_id, _ = session.request("get", ["x", b"k"])
    details = {"file": "a.gkv", "offset": 4096, "reason": "checksum"}
    (found,) = session.receive(answer(message_id, None, ["CORRUPT", "damaged", details]))
    assert isinstance(found.error, Corrupt)
    assert (found.error.file, found.error.offset) == ("a.gkv", 4096)


@pytest.mark.parametrize("again", [answer(0, b"x"), answer(7, b"x")])
def test_an_answer_without_a_request_is_refused(again):
    """An id that is not in flight, made up or answered already, ends the session."""
    session = Session()
    session.request("get", ["geo", b"k"])
    assert len(session.receive(answer(0, b"v"))) == 1
    with pytest.raises(ProtocolError, match=r"made up, or answered twice"):
        session.receive(again)


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xc1",
        msgpack.packb(None),
        msgpack.packb([1, 0, None]),
        msgpack.packb([0, 0, "get", []]),
        msgpack.packb([1, "0", None, None]),
        msgpack.packb([1, -1, None, None]),
        msgpack.packb([1, 0, None, msgpack.ExtType(5, b"x")]),
        b"\x94\x01\x00\xc0\xa2\xff\xfe",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 500,
    ],
)
def test_garbage_is_a_protocol_error(garbage):
    """What is not an answer raises `ProtocolError`, whatever it is instead."""
    session = Session()
    session.request("get", ["geo", b"k"])
    with pytest.raises(ProtocolError):
        session.receive(garbage)


def test_an_answer_over_the_limit_is_refused_at_its_head():
    """A length over the limit is refused when it is read, not when it has arrived."""
    session = Session(max_frame=1000)
    session.request("get", ["geo", b"k"])
    with pytest.raises(ProtocolError):
        session.receive(b"\x94\x01\x00\xc0\xc6\x7f\xff\xff\xff")


@settings(max_examples=300)
@given(data=st.data())
def test_mutated_answers_never_surprise(data):
    """A flipped, cut or doubled byte gives answers of the right form or `ProtocolError`, never another exception."""
    session = Session()
    ids = [session.request("get", ["geo", b"k"])[0] for _ in range(3)]
    stream = bytearray(b"".join(answer(message_id, [b"value", "v1"]) for message_id in ids))
    position = data.draw(st.integers(0, len(stream) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "double"])):
        case "flip":
            stream[position] ^= data.draw(st.integers(1, 255))
        case "cut":
            del stream[position]
        case "double":
            stream.insert(position, stream[position])
    try:
        found = session.receive(bytes(stream))
    except ProtocolError:
        return
    assert len({one.msgid for one in found}) == len(found) <= 3
    assert all(one.msgid in ids and (one.error is None or isinstance(one.error, GossipKVError)) for one in found)


def test_abandoned_answers_are_dropped():
    """Nobody gets the answer to an abandoned request, and its id is free only after it came."""
    session = Session()
    first, _ = session.request("get", ["geo", b"a"])
    second, _ = session.request("get", ["geo", b"b"])
    session.abandon(first)
    assert session.in_flight == 2
    assert [one.msgid for one in session.receive(answer(second, 2) + answer(first, 1))] == [second]
    assert session.in_flight == 0
    session.abandon(first)  # It came already: nothing to do.
    with pytest.raises(ProtocolError):
        session.receive(answer(first, 1))


def test_a_node_that_owes_too_much_is_refused():
    """Abandoned requests that are never answered are bounded."""
    session = Session()
    ids = [session.request("ping", [])[0] for _ in range(MAX_ABANDONED + 1)]
    for message_id in ids[:-1]:
        session.abandon(message_id)
    with pytest.raises(ProtocolError, match="unanswered"):
        session.abandon(ids[-1])


def test_ids_wrap_and_skip_those_in_flight():
    """After the last 32-bit id comes 0, and an id that is still open is not given twice."""
    session = Session(first_id=0xFFFF_FFFE)
    first = [session.request("ping", [])[0] for _ in range(4)]
    assert first == [0xFFFF_FFFE, 0xFFFF_FFFF, 0, 1]
    wrapped = Session(first_id=5)
    assert wrapped.request("ping", [])[0] == 5
    wrapped._next_id = 5
    assert wrapped.request("ping", [])[0] == 6


@pytest.mark.parametrize("value", [2**64, object(), "\ud800"])
def test_what_messagepack_cannot_say_is_a_bad_request(value):
    """Parameters that have no form on the wire raise `BadRequest` and leave the session as it was."""
    session = Session()
    with pytest.raises(BadRequest, match="cannot be encoded"):
        session.request("get", ["geo", value])
    assert session.in_flight == 0
    assert session.request("ping", [])[0] == 0
