"""HTTP requests of the generator, and counts of answers that agree with the oracle."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import h11
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.http import json_lines
from gossipkv.loadtest._loadtest import HttpDialect, Records
from gossipkv.wire.json_form import json_form
from tests.oracle import load_http as oracle
from tests.oracle import load_truth
from tests.unit.loadtest.pages import EDITS, page_of
from tests.unit.loadtest.scripted import Scripted

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORDS = [(b"a/b", b"value"), (b"\x00%+ \xff", b""), (b"none", None), (b"long", b"x" * 3000)]
KINDS = {"get": (1, 0, 0), "get_many": (0, 1, 0), "scan": (0, 0, 1)}
PIECES = st.lists(st.integers(0, 2**13), max_size=5)


def dialect(versions: Sequence[str | None] = (None,), *, whole: bool = False) -> HttpDialect:
    """Return a dialect whose known versions have the same values."""
    keys, values = zip(*RECORDS, strict=True)
    records = Records(keys, dict.fromkeys(versions, values), ordered=True, whole=whole)
    return HttpDialect("geo", "here:80", records)


def requests_in(stream: bytes) -> list[tuple[h11.Request, bytes]]:
    found = []
    while stream:
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(stream)
        request = connection.next_event()
        assert isinstance(request, h11.Request)
        body = b""
        while isinstance(event := connection.next_event(), h11.Data):
            body += bytes(event.data)
        assert isinstance(event, h11.EndOfMessage)
        found.append((request, body))
        stream = connection.trailing_data[0]
    return found


def unquoted(target: bytes) -> bytes:
    """Return the key of a target, percent-decoded by hand."""
    head, *parts = target.removeprefix(b"/geo/").split(b"%")
    return head + b"".join(bytes.fromhex(part[:2].decode()) + part[2:] for part in parts)


def keys_of(kind: str, request: h11.Request, body: bytes) -> list[bytes]:
    """Return the keys of a request; for a scan, its start."""
    if kind == "get":
        return [unquoted(request.target)]
    if kind == "get_many":
        return msgpack.unpackb(body)
    return [base64.b64decode(json.loads(body)["start"]["base64"], validate=True)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 3, 40])
def test_requests_are_what_a_server_reads(kind: str, batch: int) -> None:
    """Requests have keys of any bytes, are pipelined, and have bodies of the stated length."""
    with Scripted(dialect=dialect(), in_flight=20, batch=batch, mix=KINDS[kind]) as scripted:
        scripted.generator.begin(requests=20, now_ns=0)
        scripted.turn()
        requests = requests_in(scripted.peer.socket.recv(1 << 20))
    assert len(requests) == 20
    asked = set()
    for request, body in requests:
        headers = dict(request.headers)
        assert headers[b"host"] == b"here:80"
        if kind == "get":
            assert (request.method, body) == (b"GET", b"")
            asked.add(unquoted(request.target))
        elif kind == "get_many":
            assert (request.method, request.target) == (b"POST", b"/geo/_mget")
            assert headers[b"content-type"] == headers[b"accept"] == b"application/msgpack"
            keys = msgpack.unpackb(body)
            assert len(keys) == batch
            asked.update(keys)
        else:
            assert (request.method, request.target) == (b"POST", b"/geo/_scan")
            options = json.loads(body)
            assert options["limit"] == batch
            asked.add(base64.b64decode(options["start"]["base64"], validate=True))
    assert asked == {key for key, _ in RECORDS}


FORMS = (
    b'{"key":"\\u0061\\/b","value":"v\\u00e9 \\ud83d\\ude00\\n\\t\\"\\\\\\b\\f\\r"}',
    b' { "key" : {"base64": "AA=="} , "value":{"base64":""}} ',
    *(
        b'{"key":%b,"value":""}' % key
        for key in (b"1", b"null", b'"', b'"\\x"', b'"\\u12"', b'"\\ud83d"', b'"\\udc00"')
    ),
    *(
        b'{"key":"a","value":{"base64":"%b"}}' % text
        for text in (b"AAA", b"AA==AAAA", b"====", b"AA-A", b"A===", b"AAAA")
    ),
    *(b'{"key":"a"%b}' % rest for rest in (b"", b',"value":"b","c":1', b',"other":"b"', b',"value":"b"}')),
    b'{"value":"b","key":"a"}',
    b'{"key":"a","value":"\x01"}',
    b"[]",
    b"",
)
BODIES = {
    "get": st.sampled_from(["right", "right", b"other", b""]),
    "get_many": st.sampled_from(["right", "right", "short", "long", b"", b"\xc1", b"\x80"]),
    "scan": EDITS
    | st.sampled_from(["error", b"", b"{}", b'{"key":1}\n' * 9 + b'{"cursor":null}\n'])
    | st.lists(st.sampled_from(FORMS), max_size=4).map(lambda lines: b"\n".join([*lines, b'{"cursor": {}}'])),
}
ANSWER = st.fixed_dictionaries(
    {
        "status": st.sampled_from([200] * 6 + [404, 404, 500, 503]),
        "version": st.sampled_from([b"1", b"2", None]),
        "code": st.sampled_from([None, b"NOT_READY"]),
        "is_chunked": st.booleans(),
        "extra": st.sampled_from([b"", b"Server: x\r\nContent-Type:text/plain\r\n", b"connection: keep-alive\r\n"]),
        "ends": st.sampled_from([False] * 5 + [True]),
    }
)


def body_of(drawn: bytes | str | list[tuple[str, int]], asked: oracle.Asked, version: bytes | None) -> bytes:
    table = load_truth.table_of(asked.tables, (version or b"").decode()) or {}
    if isinstance(drawn, bytes):
        return drawn
    if asked.kind == "get":
        return table.get(asked.keys[0], b"")
    if isinstance(drawn, str) and asked.kind == "get_many":
        values = [table.get(key) for key in asked.keys]
        return msgpack.packb({"right": values, "short": values[1:], "long": [*values, None]}[drawn])
    edits = [] if isinstance(drawn, str) else drawn
    records, cursor = page_of(table, asked.keys[0], asked.limit, edits, [*(key for key, _ in RECORDS), b"new"])
    last = {"error": "X"} if drawn == "error" else {"cursor": json_form(cursor), "version": "1"}
    return b"".join(json_lines.record(*record) for record in records) + json_lines.line(last)


def response(answer: dict[str, object], body: bytes) -> bytes:
    head = b"HTTP/1.1 %d Some Reason\r\n%b" % (answer["status"], answer["extra"])
    for name, value in ((b"X-Sequins-Version", answer["version"]), (b"x-gossipkv-error", answer["code"])):
        head += b"%b:  %b \r\n" % (name, value) if value is not None else b""
    head += b"Connection: close\r\n" if answer["ends"] else b""
    if not answer["is_chunked"]:
        return head + b"CONTENT-LENGTH: %d\r\n\r\n%b" % (len(body), body)
    chunks = b"".join(
        b"%x;a=b\r\n%b\r\n" % (len(body[at : at + 700]), body[at : at + 700]) for at in range(0, len(body), 700)
    )
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nTrailer: x\r\n\r\n"


@given(st.sampled_from(list(KINDS)), st.lists(ANSWER, min_size=1, max_size=5), PIECES, st.integers(0, 400), st.data())
def test_any_answers_count_as_the_oracle_says(
    kind: str, answers: list[dict[str, object]], places: list[int], missing: int, data: st.DataObject
) -> None:
    """Values, records, misses and errors are counted for any chunks and cuts, with a partial last answer."""
    versions = data.draw(st.sampled_from([(None,), ("1",), ("1", "2")]))
    whole = data.draw(st.booleans())
    others = None if whole else [key for key, _ in RECORDS]
    table = {key: value for key, value in RECORDS if value is not None}
    with Scripted(dialect=dialect(versions, whole=whole), in_flight=len(answers), batch=3, mix=KINDS[kind]) as scripted:
        scripted.generator.begin(requests=len(answers), now_ns=0)
        scripted.turn()
        asked: list[oracle.Asked] = []
        for request, body in requests_in(scripted.peer.socket.recv(1 << 20)):
            keys = keys_of(kind, request, body)
            asked.append(oracle.Asked(kind, keys, 3, dict.fromkeys(versions, table), others))
        stream = b""
        for answer, each in zip(answers, asked, strict=True):
            stream += response(answer, body_of(data.draw(BODIES[kind]), each, answer["version"]))
        stream = stream[: max(0, len(stream) - missing)] if missing < 200 else stream
        counted = oracle.count(stream, asked)
        cuts = sorted(place % (len(stream) + 1) for place in places)
        for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            if scripted.generator.connections:
                scripted.peer.send(stream[begin:end])
                scripted.turn()
        names = ("answered", "keys", "wrong", "misses", "unchecked")
        assert scripted.counted(*names) == [getattr(counted, name) for name in names]
        assert scripted.generator.tally.errors() == counted.errors
        told = scripted.generator.ledger.versions_at(0)
        assert {name: requests for name, (requests, *_) in told.items()} == counted.versions
        assert scripted.generator.connections == (not counted.is_ended)
        lost = len(asked) if counted.is_ended else 0
        assert (scripted.counted("lost"), scripted.generator.tally.broken()) == ([lost], {"closed": 1} if lost else {})


@pytest.mark.parametrize(
    "stream",
    [
        b"HTTP/2.0 200 OK\r\n",
        b"\x00",
        b"\r\n",
        b"HTTP/1.1 2x0 OK\r\n",
        b"HTTP/1.1 200 OK\n",
        b"HTTP/1.1 200\r\nno colon\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxyz",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
    ],
)
def test_what_is_no_answer_breaks_the_connection(stream: bytes) -> None:
    """Other protocols, broken heads, bodies without an end and bad chunks break the connection."""
    with Scripted(dialect=dialect()) as scripted:
        scripted.generator.begin(requests=1, now_ns=0)
        scripted.peer.send(stream)
        scripted.turn()
        assert scripted.generator.tally.broken() == {"garbage": 1}


def test_what_nobody_asked_for_is_told() -> None:
    """A second answer to a request counts as unasked."""
    with Scripted(dialect=dialect()) as scripted:
        scripted.generator.begin(requests=1, now_ns=0)
        scripted.peer.send(2 * b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")
        scripted.turn()
        assert (scripted.generator.tally.errors(), scripted.generator.tally.broken()) == (
            {"HTTP_500": 1},
            {"unasked": 1},
        )


def test_a_server_that_said_so_may_end_the_connection() -> None:
    """An announced end without requests in flight loses nothing and is no break."""
    with Scripted(dialect=HttpDialect("geo", "h", [(b"k", b"v")])) as scripted:
        scripted.generator.begin(requests=5, now_ns=0)
        scripted.peer.send(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nX-Sequins-Version: 1\r\n\r\nv")
        assert not scripted.turn()
        assert scripted.counted("sent", "answered", "lost") == [1, 1, 0]
        assert (scripted.generator.connections, scripted.generator.tally.broken()) == (0, {})
