"""Requests to the functions of the gateway: bytes through an exchange, or one request at a time."""

from __future__ import annotations

import h11

from gossipkv.http import target
from gossipkv.http.answers import HttpAnswer, HttpRequest, RefusedRequest
from gossipkv.http.exchange import HttpExchange, HttpRefusal, NoRequest, RequestLimits
from gossipkv.http.reads import ReadContext
from gossipkv.http.site import answer_data
from tests.unit.http.fake_node import OWN

PLAIN = b"application/octet-stream"


def context_of(node, *, alone=False, session=None, permissions=None):
    """Return the context of reads for a gateway that belongs to the node `OWN`, or stands alone."""
    return ReadContext(node, None if alone else OWN, lambda database: PLAIN, alone, session, permissions)


async def answer_to(context, request):
    """Answer a request for a path of a database, as a site does."""
    try:
        return await answer_data(context, request, target.parse(request.target))
    except RefusedRequest as refused:
        return refused.answer


async def ask(context, method, path, headers=None, body=b""):
    """Return status, headers and the whole body of one answer."""
    named = {name.lower().encode(): value.encode() for name, value in (headers or {}).items()}
    answer = await answer_to(context, HttpRequest(method.encode(), path.encode("latin-1"), named, body))
    return answer.status, {name.decode(): value.decode() for name, value in answer.headers}, await whole(answer)


async def whole(answer: HttpAnswer):
    return answer.body if isinstance(answer.body, bytes) else b"".join([piece async for piece in answer.body])


async def converse(context, stream, *, pieces=None, limits=None):
    """Return the requests and refusals of a stream, the bytes sent, and whether the connection closes."""
    exchange = HttpExchange(limits or RequestLimits())
    asked, sent = [], []
    for piece in pieces or [stream]:
        exchange.receive(piece)
        while not isinstance(found := exchange.next_request(), NoRequest):
            asked.append(found)
            if isinstance(found, HttpRefusal):
                sent.append(exchange.whole(None, found.answer))
            else:
                sent += await sent_for(exchange, context, found)
        sent.append(exchange.interim())
    return asked, b"".join(sent), exchange.is_closing


async def sent_for(exchange, context, request):
    answer = await answer_to(context, request)
    if isinstance(answer.body, bytes):
        return [exchange.whole(request, answer)]
    head = exchange.head(request, answer)
    return [head, *[exchange.body(piece) async for piece in answer.body], exchange.end()]


def read_answers(sent, methods):
    """Parse answers with h11 as an independent client; return (status, headers, body) for each method."""
    answers = []
    for method in methods:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        client.send(h11.EndOfMessage())
        client.receive_data(sent)
        client.receive_data(b"")
        head = client.next_event()
        while isinstance(head, h11.InformationalResponse):
            head = client.next_event()
        assert isinstance(head, h11.Response), (head, sent)
        body = b""
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            body += event.data
        answers.append((head.status_code, dict(head.headers), body))
        sent = client.trailing_data[0]
    assert sent == b""
    return answers
