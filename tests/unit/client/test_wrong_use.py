"""Wrong types and values are refused in our own words, before anything is sent, by each public method."""

from __future__ import annotations

import pytest

import gossipkv
from gossipkv.client._client import Session, call_request, get_many_request, get_request
from gossipkv.errors import BadRequest, ProtocolError, TooLarge

RECORD = r"a record must be \(key, value\) or \(key, value, expires_at\)"
SESSION = r"session must be one that `client.session\(text\)` returns, not str"


class OwnBytes(bytes):
    """Like `numpy.bytes_`."""


@pytest.fixture
def client():
    """A client without a connection: whatever is sent fails."""
    return gossipkv.blocking.Client(["127.0.0.1:1"], timeout_ms=1)


@pytest.mark.parametrize("connect", [gossipkv.connect, gossipkv.aio.connect, gossipkv.blocking.connect])
@pytest.mark.parametrize(("addresses", "options", "kind", "words"), [
    ([None], {}, TypeError, "an address must be a str.*not NoneType"),
    ([7070], {}, TypeError, "an address must be a str.*not int"),
    ([[None]], {}, TypeError, "an address must be a str.*not NoneType"),
    ([], {}, ValueError, "at least one address"),
    (["a:1"], {"timeout_ms": None}, TypeError, "timeout_ms must be a number, not None"),
    (["a:1"], {"timeout_ms": "5s"}, TypeError, "timeout_ms must be a number, not '5s'"),
    (["a:1"], {"timeout_ms": 0}, ValueError, "timeout_ms must be positive, not 0"),
    (["a:1"], {"timeout_ms": float("nan")}, ValueError, "timeout_ms must be positive, not nan"),
    (["a:1"], {"stage_timeout_ms": "1"}, TypeError, "stage_timeout_ms must be a number"),
    (["a:1"], {"tls": "yes"}, TypeError, "tls must be"), (["a:1"], {"token": b"t"}, TypeError, "a token must be a str"),
])  # fmt: skip
def test_connect(connect, addresses, options, kind, words):
    with pytest.raises(kind, match=words):
        connect(*addresses, **options)


@pytest.mark.parametrize("database", ["dataset", "table"])
@pytest.mark.parametrize(("method", "arguments", "options", "refusal"), [
    ("get", [4.2], {}, (TypeError, "a key must be bytes, str or int, not float")),
    ("get", ["k"], {"session": "abc"}, (TypeError, SESSION)),
    ("get", ["k"], {"timeout_ms": "5s"}, (TypeError, "timeout_ms must be a number, not '5s'")),
    ("has", [None], {}, (TypeError, "a key must be bytes, str or int, not NoneType")),
    ("get_many", ["abc"], {}, (TypeError, "keys must be an iterable, such as a list, not 'abc'")),
    ("get_many", [None], {}, (TypeError, "keys must be an iterable, such as a list, not None")),
    ("get_many", [["k"]], {"into": ["arrow"]}, (BadRequest, "into must be 'arrow' or None")),
    ("scan", [], {"session": "abc"}, (TypeError, SESSION)),
    ("scan", [], {"limit": "9"}, (TypeError, "limit must be a number")),
    ("scan", [], {"limit": -1}, (BadRequest, "limit must not be negative")),
])  # fmt: skip
def test_reads(client, database, *, method, arguments, options, refusal):
    kind, words = refusal
    with pytest.raises(kind, match=words):
        getattr(getattr(client, database)("t"), method)(*arguments, **options)


@pytest.mark.parametrize(("method", "arguments", "options", "refusal"), [
    ("put_many", [[("a",)]], {}, (TypeError, RECORD)), ("put_many", [[("a", b"b", 1, 2)]], {}, (TypeError, RECORD)),
    ("put_many", [[7]], {}, (TypeError, RECORD)), ("put_many", [{"a": b"b"}], {}, (TypeError, RECORD)),
    ("put_many", [7], {}, (TypeError, "records must be an iterable")),
    ("put_many", [[("a", "b")]], {}, (TypeError, "a value must be bytes, not str")),
    ("put", ["a", b"b"], {"session": "abc"}, (TypeError, SESSION)),
    ("delete_many", ["abc"], {}, (TypeError, "keys must be an iterable, such as a list, not 'abc'")),
    ("changes", [], {"token": b""}, (BadRequest, "an empty token is none: omit it to begin now")),
    ("changes", [], {"wait_ms": "1m"}, (TypeError, "wait_ms must be a number")),
])  # fmt: skip
def test_tables(client, *, method, arguments, options, refusal):
    kind, words = refusal
    with pytest.raises(kind, match=words):
        next(getattr(client.table("t"), method)(*arguments, **options))


@pytest.mark.parametrize(("call", "words"), [
    (lambda client: client.dataset(None), "the name of a database must be a str, not NoneType"),
    (lambda client: client.table(7), "the name of a database must be a str, not int"),
    (lambda client: client.call(7), "the method must be a str, not int"),
    (lambda client: client.pipeline(["get"], []), "the method must be a str, not list"),
    (lambda client: client.pipeline("get", 7), "requests must be an iterable"),
    (lambda client: client.pipeline("get", [], "1"), "in_flight must be a number"),
    (lambda client: next(client.dataset("d").iter_get(7)), "keys must be an iterable, such as a list, not 7"),
    (lambda client: client.dataset("d").get("k", min_version=7), "min_version must be a str, not int"),
    (lambda client: client.dataset("d").scan(version=7), "version must be a str, not int"),
    (lambda client: next(client.dataset("d").iter_get(["k"], version=7)), "version must be a str, not int"),
])  # fmt: skip
def test_other_calls(client, call, words):
    with pytest.raises(TypeError, match=words):
        call(client)


def test_a_session_of_something_else(client):
    with pytest.raises(BadRequest, match="not a saved session"):
        client.session(7)


def test_keys_of_a_subclass_of_bytes_are_sent_as_bytes():
    for key in (OwnBytes(b"k"), bytearray(b"k"), memoryview(b"k"), "k"):
        assert get_request(b"\xa1d", key).size_bytes == get_request(b"\xa1d", b"k").size_bytes
        assert get_many_request(b"\xa1d", [key]).keys() == [b"k"]


def test_a_value_that_no_node_takes():
    with pytest.raises(
        TooLarge, match=r"put: the request has 200000\d\d bytes; a node takes at most 17825792"
    ) as caught:
        call_request("put", ["t", b"k", bytes(20_000_000), {}])
    assert caught.value.details["limit"] == 17 << 20 < caught.value.details["size"]


@pytest.mark.parametrize(("answer", "words"), [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "this port speaks HTTP; connect to the node's port for clients"),
    (b"-ERR unknown command\r\n", "this port speaks RESP, Redis's protocol; connect to the node's port"),
    (b"-", "not a response"),
])  # fmt: skip
def test_a_port_of_another_protocol(answer, words):
    session = Session()
    session.send(call_request("ping", []))
    assert session.receive(answer) == []
    assert isinstance(session.failure, ProtocolError)
    assert words in session.failure.message or words == "not a response"
