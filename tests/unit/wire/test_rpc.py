"""Messages: encoded, decoded, and refused if malformed."""

from __future__ import annotations

import msgpack
import pytest

from gossipkv.errors import (
    BadRequest,
    Corrupt,
    GossipKVError,
    NotReady,
    ProtocolError,
    ServiceError,
    TooLarge,
    Unavailable,
    Unknown,
    UnknownVersion,
)
from gossipkv.wire import rpc
from gossipkv.wire.arguments import Arguments
from gossipkv.wire.frames import FrameReader
from tests.unit.wire.answers import error_response


def test_request_round_trip() -> None:
    """Text comes back as bytes."""
    frame = rpc.request(rpc.MAX_MESSAGE_ID, "get", ["db", b"key", {"version": "1"}])
    assert rpc.decode_request(frame) == (rpc.MAX_MESSAGE_ID, b"get", [b"db", b"key", {b"version": b"1"}])


def test_text_need_not_be_utf8_towards_a_node() -> None:
    """Keys are bytes, so a client may send arbitrary bytes as `str`."""
    assert [*Arguments(b"get", b"\x92\xa2db\xa2\xff\xfe").values] == [b"db", b"\xff\xfe"]


def test_response_round_trip() -> None:
    """For a client, `bin` is bytes and `str` is text."""
    assert rpc.decode_response(rpc.response(7, [b"value", "version"])) == (7, None, [b"value", "version"])


def test_text_that_utf8_cannot_say_goes_out_escaped() -> None:
    """A file name may be any bytes; the answer that contains it must still be sent."""
    assert rpc.decode_response(rpc.response(7, ["\udcff"])) == (7, None, ["\\udcff"])
    error = rpc.decode_response(error_response(7, NotReady("\udcff", {"file": "\udcff"}))).error
    assert error is not None
    assert (error.message, error.details) == ("\\udcff", {"file": "\\udcff"})


@pytest.mark.parametrize(
    "error",
    [
        BadRequest("what", {"limit": 1}),
        UnknownVersion("which", {"held": ["1", "2"]}),
        NotReady("when", {"done": 0.5}),
        TooLarge("how much"),
        Unavailable("who"),
        Unknown("put may or may not have been done", {"address": "a:1"}),
        Corrupt("file", 4096, "checksum", expected=1, got=2),
    ],
)
def test_error_round_trip(error: GossipKVError) -> None:
    answer = rpc.decode_response(error_response(3, error))
    assert answer.msgid == 3
    assert type(answer.error) is type(error)
    assert answer.error is not None
    assert answer.error.code == error.code
    assert answer.error.details.items() <= error.details.items()


def test_unknown_error_codes_keep_their_text() -> None:
    """A newer node's code and another implementation's plain text stay readable."""
    newer = rpc.decode_response(msgpack.packb([1, 1, ["FROM_TOMORROW", "text", {}], None]))
    assert isinstance(newer.error, ServiceError)
    assert "FROM_TOMORROW: text" in str(newer.error)
    other = rpc.decode_response(msgpack.packb([1, 1, "just text", None]))
    assert "just text" in str(other.error)


def test_notification_is_one_frame() -> None:
    assert msgpack.unpackb(rpc.notification("note", [1])) == [2, "note", [1]]


@pytest.mark.parametrize(
    "message",
    [[], [0], [0, 1, "m"], [0, -1, "m", []], [0, 2**32, "m", []], [0, 1, 2, []], [0, 1, "m", {}], [1, 1, None, 1], 5],
)
def test_what_is_no_request(message: object) -> None:
    with pytest.raises(BadRequest):
        rpc.decode_request(msgpack.packb(message))


@pytest.mark.parametrize(
    "message",
    [
        [],
        [1],
        [1, 1, None],
        [0, 1, "m", []],
        {},
        None,
        [1, "x", None, 1],
        [1, True, None, 1],
        [True, 1, None, 1],
        [1.0, 1, None, 1],
    ],
)
def test_what_is_no_response(message: object) -> None:
    """Anything but `[1, id, error, result]` is a protocol error that shows the message."""
    with pytest.raises(ProtocolError, match="expected"):
        rpc.decode_response(msgpack.packb(message))


def test_undecodable_text_in_a_response() -> None:
    """Invalid UTF-8 is a protocol error, not a UnicodeDecodeError."""
    with pytest.raises(ProtocolError, match="cannot be decoded"):
        rpc.decode_response(b"\x94\x01\x01\xc0\xa1\xff")


@pytest.mark.parametrize(
    ("params", "kind"), [(b"\x80", "a map"), (b"\xc0", "nil"), (b"\xa1x", "bytes"), (b"\x07", "an integer")]
)
def test_params_must_be_an_array(params: bytes, kind: str) -> None:
    with pytest.raises(BadRequest, match=f"not {kind}"):
        Arguments(b"get", params)


def test_map_keys_must_be_text() -> None:
    """A map with other keys cannot be options."""
    with pytest.raises(BadRequest, match="cannot be decoded"):
        Arguments(b"get", b"\x91\x81\x01\x02")


def test_several_messages_in_one_stream() -> None:
    reader = FrameReader()
    reader.feed(rpc.request(1, "ping", []) + rpc.response(2, None))
    first, second = reader
    assert rpc.decode_request(first).method == b"ping"
    assert rpc.decode_response(second).msgid == 2
