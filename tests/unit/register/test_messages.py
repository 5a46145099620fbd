"""Requests, replies and records survive encoding, and other bytes are refused."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossipkv.errors import ProtocolError, UnsupportedFormat
from gossipkv.register.ballot import MAX_COUNTER, MAX_GENERATION, ZERO, Ballot
from gossipkv.register.configuration import (
    MAX_ACCEPTORS,
    MAX_FORCES,
    MAX_PAYLOAD_BYTES,
    AcceptorId,
    Acceptors,
    Forced,
    Value,
)
from gossipkv.register.messages import (
    FORMAT,
    MAX_BYTES,
    AcceptorRecord,
    AcceptorVerdict,
    RegisterRequest,
    Reply,
    RequestKind,
    decode_record,
    decode_reply,
    decode_request,
    encode_record,
    encode_reply,
    encode_request,
)
from tests.unit.register.values import REPLIES, records, requests

BOTH = {
    "request": (requests(), encode_request, decode_request),
    "reply": (REPLIES, encode_reply, decode_reply),
    "record": (records(), encode_record, decode_record),
}


@pytest.mark.parametrize("what", BOTH)
def test_what_is_written_is_read(what):
    drawn, encode, decode = BOTH[what]

    @given(drawn)
    def comes_back(message):
        assert decode(encode(message)) == message

    comes_back()


WRONG = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=20),
    st.text(max_size=5),
    st.lists(st.integers(0, 3), max_size=5),
    st.dictionaries(st.text(max_size=2), st.booleans(), max_size=2),
    st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=3)),
)


def with_another(value, path, other):
    """Return the nested lists with one place replaced."""
    if not isinstance(value, list) or not value:
        return other
    at = path[0] % len(value)
    return [
        with_another(one, path[1:], other) if at == place and path[1:] else (other if at == place else one)
        for place, one in enumerate(value)
    ]


@pytest.mark.parametrize("what", BOTH)
def test_what_is_no_message_is_refused(what):
    """Changed, cut or recombined bytes are a message or are refused as malformed."""
    drawn, encode, decode = BOTH[what]

    def is_read_or_refused(data):
        try:
            message = decode(data)
        except (ProtocolError, UnsupportedFormat):
            return
        assert decode(encode(message)) == message  # Any decoded message can be encoded again.

    @given(drawn, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=4), st.integers(0), st.binary())
    def flipped(message, flips, cut, more):
        data = bytearray(encode(message))
        for at, byte in flips:
            data[at % len(data)] = byte
        is_read_or_refused(bytes(data))
        is_read_or_refused(bytes(data)[: cut % len(data)])
        is_read_or_refused(bytes(data) + more)

    @given(drawn, st.lists(st.integers(0, 20), min_size=1, max_size=6), WRONG)
    def put_together(message, path, other):
        whole = msgpack.unpackb(encode(message))
        is_read_or_refused(msgpack.packb(with_another(whole, path, other)))

    @given(st.one_of(st.binary(max_size=60), WRONG.map(msgpack.packb)))
    @example(b"\xdd\xff\xff\xff\xff")  # A list of 4 billion.
    @example(b"\x91" * 5000)  # Nested too deeply.
    @example(b"\xd6\xff\x00\x00\x00\x00")  # A timestamp.
    @example(b"\xc7\x0c\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")  # A malformed timestamp.
    @example(b"\x81\x90\x01")  # A list as a key.
    def anything(data):
        is_read_or_refused(data)

    flipped()
    put_together()
    anything()


@pytest.mark.parametrize("what", BOTH)
def test_another_format_is_told_from_damage(what):
    """The format number alone causes the refusal, which tells who wrote the data."""
    with pytest.raises(UnsupportedFormat, match="a newer GossipKV wrote it"):
        BOTH[what][2](msgpack.packb([FORMAT + 1, "whatever"]))
    with pytest.raises(UnsupportedFormat, match="an older GossipKV wrote it"):
        BOTH[what][2](msgpack.packb([FORMAT - 1, "whatever"]))
    with pytest.raises(ProtocolError):
        BOTH[what][2](msgpack.packb(["1", "whatever"]))


@pytest.mark.parametrize("what", BOTH)
def test_too_many_bytes_are_refused(what):
    """The size is checked before decoding."""
    with pytest.raises(ProtocolError, match="at most"):
        BOTH[what][2](bytes(MAX_BYTES + 1))


def test_the_largest_message_is_not_too_large():
    """The largest payload comes in a joint configuration of the largest sets, after the most forces."""
    ids = [AcceptorId(bytes([number]) * 16, (1 << 64) - 1) for number in range(2 * MAX_ACCEPTORS)]
    joint = Acceptors.of(ids[:MAX_ACCEPTORS]).joint_with(ids[MAX_ACCEPTORS:], (1 << 64) - 1)
    forces = (Forced(MAX_GENERATION, (1 << 64) - 1, tuple(ids)),) * MAX_FORCES
    value = Value(joint, bytes(MAX_PAYLOAD_BYTES), forces)
    last = Ballot(MAX_GENERATION, (1 << 64) - 1, MAX_COUNTER, (1 << 64) - 1)
    record = AcceptorRecord(last, last, value, MAX_GENERATION)
    reply = Reply(AcceptorVerdict.OK, bytes(16), ids[0], (1 << 62) - 1, last, record)
    assert decode_reply(encode_reply(reply)) == reply
    request = RegisterRequest(RequestKind.PREPARE, bytes(16), ids[0], 0, last, holding=value)
    assert decode_request(encode_request(request)) == request


def reply_of(record):
    """Return the bytes of a reply with this record."""
    return msgpack.packb([FORMAT, 0, bytes(16), [bytes(16), 1], 0, None, record])


ID, OTHER = [b"a" * 16, 1], [b"b" * 16, 1]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ([[0, 5, 1, 1], None, None, 0], "ballot"),  # A force id in the first generation.
        ([[1, 0, 1, 1], None, None, 0], "ballot"),  # No force id in another one.
        ([[0, 0, MAX_COUNTER + 1, 1], None, None, 0], "ballot"),
        ([[0, 0, -1, 0], None, None, 0], "ballot"),
        ([ZERO, [0, 0, 1, 1], None, 0], "record"),  # The accepted ballot exceeds the promise.
        ([ZERO, None, [[[ID], [ID], 0], b"", []], 0], "ballot"),  # A value without a ballot.
        ([ZERO, None, None, MAX_GENERATION + 1], "record"),
        ([ZERO, ZERO, [[[ID], [ID], 7], b"", []], 0], "joint id"),  # A joint configuration of one set.
        ([ZERO, ZERO, [[[ID], [OTHER], 0], b"", []], 0], "joint id"),  # Two sets without an id.
        ([ZERO, ZERO, [[[], [], 0], b"", []], 0], "acceptors must be a sorted list"),  # An empty set.
        ([ZERO, ZERO, [[[OTHER, ID], [OTHER, ID], 0], b"", []], 0], "acceptors must be a sorted list"),  # Not in order.
        ([ZERO, ZERO, [[[ID, ID], [ID, ID], 0], b"", []], 0], "acceptors must be a sorted list"),  # A repeated member.
        ([ZERO, ZERO, [[[[b"a" * 15, 1]], [[b"a" * 15, 1]], 0], b"", []], 0], "acceptor"),
        ([ZERO, ZERO, [[[[b"a" * 16, 0]], [[b"a" * 16, 0]], 0], b"", []], 0], "acceptor"),  # No store id.
        ([ZERO, ZERO, [[[ID], [ID], 0], b"", [[0, 7, []]]], 0], "force"),
        ([ZERO, ZERO, [[[ID], [ID], 0], b"", [[1, 7, []]] * (MAX_FORCES + 1)], 0], "value"),
        ([ZERO, ZERO, [[[ID], [ID], 0], bytes(MAX_PAYLOAD_BYTES + 1), []], 0], "value"),
    ],
)
def test_a_record_that_cannot_be_is_refused(record, why):
    """The error names the contradictory part."""
    with pytest.raises(ProtocolError, match=why):
        decode_reply(reply_of(record))


def test_a_value_without_its_bytes_is_only_told():
    """A reply may omit the value; a stored record has it."""
    accepted = [ZERO, ZERO, None, 0]
    assert decode_reply(reply_of(accepted)).record == AcceptorRecord(ZERO, ZERO)
    with pytest.raises(ProtocolError, match="record"):
        decode_record(msgpack.packb([FORMAT, *accepted]))
