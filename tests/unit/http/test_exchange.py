from __future__ import annotations

import re
from itertools import pairwise, product

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.http.answers import HttpAnswer, HttpRequest, text
from gossipkv.http.exchange import (
    CLOSED,
    CONTINUE,
    NEED_DATA,
    Dates,
    HttpExchange,
    HttpRefusal,
    NoRequest,
    RequestLimits,
)
from gossipkv.http.target import MAX_TARGET_BYTES
from tests.unit.http.asking import read_answers

GET = b"GET /geo/x HTTP/1.1\r\nHost: h\r\n\r\n"
HEAD = b"HEAD /geo/x HTTP/1.1\r\nHost: h\r\n\r\n"
OLD = b"GET /geo/x HTTP/1.0\r\n\r\n"
LAST = b"GET /geo/last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
POST = b"POST /geo/_mget HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nX: 1\r\nx: 2\r\n\r\nabc\r\n"
CHUNKS = (
    b"POST /geo/_mget HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n"
)


def heard(*pieces, limits=None):
    """Return the results of an exchange that receives the pieces one by one, and the exchange."""
    exchange = HttpExchange(limits or RequestLimits())
    found = []
    for piece in pieces:
        exchange.receive(piece)
        while (each := exchange.next_request()) is not NEED_DATA:
            found.append(each)
            if each is CLOSED:
                return found, exchange
    return found, exchange


def refused(stream, limits=None):
    """Return status and line of the refusal of a stream."""
    found, exchange = heard(stream, limits=limits)
    assert [type(each) for each in found] == [HttpRefusal, NoRequest]
    refusal, _ = found
    ((status, headers, body),) = read_answers(exchange.whole(None, refusal.answer), ["GET"])
    assert exchange.is_closing
    assert (headers[b"connection"], headers[b"content-type"]) == (b"close", b"text/plain; charset=utf-8")
    assert body.endswith(b"\n")
    assert body.count(b"\n") == 1
    return status, body.decode()


def judged_by_h11(stream):
    """Return the requests that h11 alone finds in a stream."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(stream)
    connection.receive_data(b"")
    found = []
    while isinstance(head := connection.next_event(), h11.Request):
        body = b""
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            body += event.data
        headers = {}
        for name, value in head.headers:
            headers[name] = b", ".join(filter(None, (headers.get(name), value)))
        found.append(HttpRequest(head.method, head.target, headers, body))
        connection.send(h11.Response(status_code=204, headers=[]))
        connection.send(h11.EndOfMessage())
        if connection.our_state is not h11.DONE:
            break
        connection.start_next_cycle()
    return found


@given(
    st.lists(st.sampled_from([GET, HEAD, POST, CHUNKS, b"\r\n" + GET]), max_size=6),
    st.sampled_from([b"", OLD, LAST]),
    st.lists(st.integers(0, 600), max_size=8),
)
def test_requests_are_those_of_h11_however_they_are_cut(streams, last, cuts):
    """Methods, targets, headers, bodies and the end agree with h11, in order."""
    stream = b"".join([*streams, last])
    expected = judged_by_h11(b"".join([each.removeprefix(b"\r\n") for each in streams] + [last]))
    at = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[begin:end] for begin, end in pairwise(at)]
    found, exchange = heard(*pieces, b"")
    assert found == [*expected, CLOSED]
    assert len(expected) == len(streams) + bool(last)
    assert not exchange.has_begun


LINES = [
    *(b"GET /geo/x HTTP/1.1", b"HEAD /geo/y HTTP/1.1", b"OPTIONS /geo/x HTTP/1.1", b"CONNECT /geo/x HTTP/1.1"),
    *(b"GET /geo/x HTTP/1.2", b"GET /geo/x HTTP/1.0", b"GET /geo/\xe9 HTTP/1.1", b"GET  /geo/x HTTP/1.1"),
]
FIELDS = [
    *(b"Host: h\r\n", b"Host: h\r\nX: 1\r\nx: 2\r\n", b"", b"Host: h\r\nHost: h\r\n", b"Host: h\r\nX : 1\r\n"),
    *(b"Host: h\r\nConnection: close\r\n", b"Host: h\r\nConnection: keep-alive\r\n", b"Host: h\r\nUpgrade: x\r\n"),
    *(b"Host: h\r\nContent-Length: 0\r\n", b"Host: h\r\nExpect: x\r\n", b"Host: h\r\nX: %b\r\n" % (b"x" * 3000)),
]


def test_what_came_before_changes_no_request():
    """In each pair of heads the second is judged as if it came first."""
    heads = [b"%b\r\n%b\r\n" % head for head in product(LINES, FIELDS)]
    alone = {head: heard(head)[0] for head in heads}
    for first, second in product(heads, heads):
        both = alone[first] if CLOSED in alone[first] else alone[first] + alone[second]
        assert heard(first + second)[0] == both, (first, second)


def test_a_request_byte_by_byte():
    """The request is complete with its last byte and not before."""
    for request in (GET, POST, CHUNKS, b"\r\n" + GET):
        exchange = HttpExchange(RequestLimits())
        for at in range(len(request) - 1):
            exchange.receive(request[at : at + 1])
            assert exchange.next_request() is NEED_DATA
            assert exchange.has_begun is (request[: at + 1] != b"\r\n")
        exchange.receive(request[-1:])
        assert isinstance(exchange.next_request(), HttpRequest)
        assert not exchange.has_begun


def test_answers_come_in_the_order_of_requests():
    """Several requests may be taken before the first answer; answers must keep the order."""
    (first, second), exchange = heard(GET + HEAD)
    with pytest.raises(AssertionError):
        exchange.head(HttpRequest(b"GET", b"/other"), text(200, "x"))
    (first, second), exchange = heard(GET + HEAD)
    sent = exchange.whole(first, text(404, "first")) + exchange.whole(second, text(200, "second"))
    answers = read_answers(sent, ["GET", "HEAD"])
    assert [(status, body) for status, _, body in answers] == [(404, b"first\n"), (200, b"")]
    assert answers[1][1][b"content-length"] == b"7"
    assert not exchange.is_closing


@pytest.mark.parametrize("request_", [OLD, LAST, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"])
def test_the_last_answer_says_so(request_):
    """HTTP/1.0 and `Connection: close` end the connection; later requests are not taken."""
    found, exchange = heard(GET + request_ + GET)
    first, last, closed = found
    assert closed is CLOSED
    assert not exchange.is_closing
    head = exchange.head(first, text(200, "x"))
    assert b"Connection" not in head
    assert not exchange.is_closing
    assert b"Connection: close\r\n" in exchange.head(last, text(200, "x"))
    assert exchange.is_closing


def test_an_answer_in_pieces():
    """Chunks are never empty; without the final chunk a client notices the cut."""

    async def nothing():
        yield b""

    (request,), exchange = heard(GET)
    answer = HttpAnswer(200, [(b"X", b"y")], nothing())
    head = exchange.head(request, answer)
    pieces = [exchange.body(piece) for piece in (b"ab", b"", b"c" * 20)]
    assert pieces[1] == b""
    ((status, headers, body),) = read_answers(b"".join([head, *pieces, exchange.end()]), ["GET"])
    assert (status, headers[b"transfer-encoding"], body) == (200, b"chunked", b"ab" + b"c" * 20)
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(b"".join([head, *pieces]))
    client.receive_data(b"")
    events = [client.next_event() for _ in range(3)]
    assert [type(event) for event in events] == [h11.Response, h11.Data, h11.Data]
    with pytest.raises(h11.RemoteProtocolError):
        client.next_event()


def test_an_answer_in_pieces_to_an_old_client():
    """HTTP/1.0 has no chunks: the end of the connection ends the body."""

    async def nothing():
        yield b""

    (request, _), exchange = heard(OLD)
    head = exchange.head(request, HttpAnswer(200, [], nothing()))
    assert b"chunked" not in head
    assert b"Content-Length" not in head
    assert not exchange.is_closing
    assert (exchange.body(b"abc"), exchange.end()) == (b"abc", b"")
    assert b"Connection: close" in head
    assert exchange.is_closing


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body(status):
    """The answer has neither body nor length."""
    (request,), exchange = heard(GET)
    ((told, headers, body),) = read_answers(exchange.whole(request, HttpAnswer(status, [(b"ETag", b'"x"')])), ["GET"])
    assert (told, body, b"content-length" in headers) == (status, b"", False)


def test_nothing_that_is_stored_is_a_page():
    """Answers forbid type guessing and scripts; only a page may set a policy of its own."""
    usual = b"default-src 'none'; style-src 'unsafe-inline'; sandbox"
    own = [(b"Content-Security-Policy", b"script-src 'self'")]
    values = [
        HttpAnswer(200, [(b"Content-Type", b"text/html")], b"<script>"),
        text(404, "x"),
        HttpAnswer(304),
        HttpAnswer(200, own),
    ]
    for answer in values:
        exchange = HttpExchange(RequestLimits())
        exchange.receive(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        head = exchange.head(exchange.next_request(), answer)
        assert head.count(b"X-Content-Type-Options: nosniff\r\n") == 1
        policies = re.findall(rb"Content-Security-Policy: (.*)\r\n", head)
        assert policies == [b"script-src 'self'" if answer.headers == own else usual]
    exchange.receive(b"no request\r\n\r\n")
    assert b"nosniff" in exchange.whole(None, exchange.next_request().answer)


def test_unknown_statuses_and_dates():
    """A status without a phrase is sent as a number; the date is written once a second."""
    now = [784_111_777.9]
    exchange = HttpExchange(RequestLimits(), dates=Dates(lambda: now[0]))
    dates = []
    for step in (0.0, 0.05, 0.1):
        now[0] += step
        exchange.receive(GET)
        ((status, headers, _),) = read_answers(exchange.whole(exchange.next_request(), HttpAnswer(499)), ["GET"])
        assert status == 499
        dates.append(headers[b"date"])
    assert dates == [*[b"Sun, 06 Nov 1994 08:49:37 GMT"] * 2, b"Sun, 06 Nov 1994 08:49:38 GMT"]


def test_a_header_is_not_broken_by_what_it_names():
    """A line feed in a header value is our own bug, and is never sent."""
    (request,), exchange = heard(GET)
    with pytest.raises(AssertionError):
        exchange.head(request, HttpAnswer(200, [(b"X", b"a\r\nSet-Cookie: b")]))


EXPECTING = b"POST /geo/_mget HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n"


def test_who_waits_for_leave_gets_it_once():
    """A client that waits for 100 Continue gets it once; a client that has sent its body does not."""
    exchange = HttpExchange(RequestLimits())
    exchange.receive(EXPECTING)
    assert exchange.next_request() is NEED_DATA
    assert exchange.interim() == CONTINUE
    assert exchange.interim() == b""
    exchange.receive(b"ab")
    assert exchange.next_request() is NEED_DATA
    assert exchange.interim() == b""
    exchange.receive(b"c")
    assert exchange.next_request().body == b"abc"
    exchange.receive(EXPECTING + b"abc")
    assert exchange.next_request().body == b"abc"
    assert exchange.interim() == b""
    exchange.receive(EXPECTING.replace(b": 3", b": 3000000"))
    assert isinstance(exchange.next_request(), HttpRefusal)
    assert exchange.interim() == b""


@pytest.mark.parametrize(
    ("stream", "status", "said"),
    [
        (b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n" % (b"x" * MAX_TARGET_BYTES * 2), 414, "more than 8192 bytes"),
        (b"GET /" + b"x" * MAX_TARGET_BYTES * 2, 414, "more than 8192 bytes"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 33_000, 431, "more than 32768 bytes"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 33_000 + b"\r\n\r\n", 431, "more than 32768 bytes"),
        (b"GET / HTTP/1.1\r\nHost: h\r\n" + b"X: y\r\n" * 100 + b"\r\n", 431, "more than 100"),
        (EXPECTING.replace(b": 3", b": 2097153"), 413, "2097153 bytes"),
        (EXPECTING.replace(b"100-C", b"200-c"), 417, "100-continue"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400, "conflicting"),
        (CHUNKS.replace(b"Host: h", b"Host: h\r\nContent-Length: 5"), 400, "both Content-Length"),
        (CHUNKS.replace(b"chunked", b"gzip, chunked"), 501, "chunked"),
        (CHUNKS.replace(b"3;name", b"z;name"), 400, "chunk"),
        (CHUNKS.replace(b"\r\nabc\r\n", b"\r\nabcd\r\n"), 400, "chunk"),
        (GET.replace(b"Host: h", b"Host: h\r\nContent-Length: 3") + b"abc", 400, "must have no body"),
        (CHUNKS.replace(b"POST", b"GET"), 400, "must have no body"),
        (CHUNKS.partition(b"3;")[0] + b"1%b\r\n" % (b"0" * 17), 413, "295147905179352825856 bytes"),
        (CHUNKS.partition(b"3;")[0] + b"3\r\nabc\r\n200000;x=y\r\n", 413, "2097155 bytes"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", 400, "second line"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n\tb\r\n\r\n", 400, "second line"),
        (b"GET / HTTP/1.1\nHost: h\n\n", 400, "LF alone"),
        (b"GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", 400, "alone"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n", 400, "alone"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n", 400, "illegal header"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX : a\r\n\r\n", 400, "illegal header"),
        (b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400, "illegal request line"),
        (b"GET /\r\n\r\n", 400, "illegal request line"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Host"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", 400, "Host"),
        (b"CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n", 400, "CONNECT"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "but the request is HTTP/2.0"),
        (b"GET / HTTP/3.0\r\nHost: h\r\n\r\n", 505, "but the request is HTTP/3.0"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "http:// instead of https://"),
        (b"\x94\x00\x07\xa3get\x92\xa3geo\xc4\x04lima", 400, "MessagePack-RPC"),
        (b"\xdc\x00\x04\x00\x07\xa3get", 400, "MessagePack-RPC"),
        (b"\0", 400, "HTTP/1.1 without TLS"),
        (b" GET / HTTP/1.1\r\n\r\n", 400, "byte 0x20"),
        (b"\r\n\r\n", 400, "byte 0x0d"),
        (b"*1\r\n$4\r\nPING\r\n\r\n", 400, "illegal request line"),
    ],
)
def test_what_is_no_request_is_told_so_in_a_line(stream, status, said):
    """The refusal has a clear status, and ends the connection at the first wrong byte."""
    told, line = refused(stream)
    assert told == status
    assert said in line


def test_targets_of_8_kib_and_heads_of_32_are_taken():
    """The limits themselves are allowed."""
    long = b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n" % (b"x" * (MAX_TARGET_BYTES - 1))
    large = b"GET / HTTP/1.1\r\nHost: h\r\nX: "
    large += b"x" * (32 * 1024 - len(large) - 4) + b"\r\n\r\n"
    many = b"GET / HTTP/1.1\r\nHost: h\r\n" + b"X: y\r\n" * 99 + b"\r\n"
    for stream in (long, large, many):
        (request,), _ = heard(stream)
        assert isinstance(request, HttpRequest)


@pytest.mark.parametrize("cut", range(1, 60))
def test_the_sizes_of_chunks_are_seen_wherever_they_are_cut(cut):
    """An announced chunk that is too large is refused early; similar bytes within chunks are not."""
    head, _, _ = CHUNKS.partition(b"3;")
    data = b"fffffff\r\nfffffff\r\n"
    harmless = b"%x;n=v\r\n%b\r\n0000A\r\n0123456789\r\n" % (len(data), data)
    for body in (harmless + b"0\r\nfffffff: 1\r\n\r\n" + GET, harmless + b"fffffff\r\n"):
        found, _ = heard(head, body[:cut], body[cut:])
        if body.endswith(GET):
            assert [len(each.body) for each in found[:2]] == [len(data) + 10, 0]
        else:
            answer = found[0].answer
            assert (answer.status, b"bytes or more" in answer.body) == (413, True)


@pytest.mark.parametrize("method", [b"PATCH", b"REPORT"])
@pytest.mark.parametrize("body", [b"Content-Length: 3000000\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc"])
def test_a_body_that_nobody_wants_is_left_unread(method, body):
    """The answer closes the connection: the bytes that follow are no request."""
    (request, closed), exchange = heard(method + b" /geo/x HTTP/1.1\r\nHost: h\r\n" + body + GET)
    assert (request.method, request.target, request.body, closed) == (method, b"/geo/x", b"", CLOSED)
    assert exchange.left_unread
    assert b"Connection: close" in exchange.whole(request, text(405, "x"))
    assert exchange.is_closing


def test_a_body_in_too_many_pieces():
    """Too many small chunks are refused, and so is too large a body."""
    stream = CHUNKS.partition(b"3;")[0] + b"1\r\nx\r\n" * 20
    assert refused(stream, RequestLimits(max_pieces=10))[0] == 413
    assert refused(CHUNKS, RequestLimits(max_body=4))[0] == 413
    assert heard(CHUNKS, limits=RequestLimits(max_body=5))[0][0].body == b"abcde"


@pytest.mark.parametrize("begun", [b"", b"GET /geo", POST[:-1], CHUNKS[:-2]])
def test_a_peer_that_ends_within_a_request(begun):
    """The peer gets no answer."""
    found, exchange = heard(GET + begun, b"")
    request, closed = found
    assert closed is CLOSED
    assert b"Connection: close" in exchange.whole(request, text(200, "x"))
    assert exchange.is_closing


def test_bytes_beyond_ascii_in_a_target_are_escaped():
    """Clients like curl send typed characters unescaped, and Sequins accepts them."""
    (request,), _ = heard("GET /geo/München HTTP/1.1\r\nHost: h\r\nX: ü\r\n\r\n".encode())
    assert request.target == b"/geo/M%C3%BCnchen"
    assert request.headers[b"x"] == "ü".encode()


def test_a_thousand_requests_at_once():
    """Each request is parsed when it is asked for; none is read ahead."""
    exchange = HttpExchange(RequestLimits())
    exchange.receive(GET * 1000)
    for _ in range(1000):
        exchange.whole(exchange.next_request(), text(200, "x"))
    assert exchange.next_request() is NEED_DATA


def test_finishing():
    """Requests that were taken are answered, the last answer closes, and no further request is taken."""
    exchange = HttpExchange(RequestLimits())
    exchange.receive(GET + GET + GET)
    first, second = exchange.next_request(), exchange.next_request()
    exchange.finish()
    exchange.receive(GET)
    assert exchange.next_request() is CLOSED
    assert b"Connection" not in exchange.head(first, text(200, "x"))
    assert not exchange.is_closing
    assert b"Connection: close" in exchange.head(second, text(200, "x"))
    assert exchange.is_closing


def test_who_would_rather_speak_another_protocol():
    """An upgrade is declined: the request is answered, and the connection ends."""
    upgrade = GET.replace(b"Host: h", b"Host: h\r\nConnection: Upgrade\r\nUpgrade: h2c")
    (request, closed), exchange = heard(upgrade + GET)
    assert closed is CLOSED
    assert read_answers(exchange.whole(request, text(200, "x")), ["GET"])[0][0] == 200
    assert exchange.is_closing
