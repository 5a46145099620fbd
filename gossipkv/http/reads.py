"""What is answered to GET and HEAD of one key; `batches` has many, `scans` has them in order.

Rejected: to answer `?proxy=VERSION` from another version where that one is not held, as Sequins does: an answer is
never from a version that was not asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.errors import GossipKVError, ProtocolError
from gossipkv.http import conditions
from gossipkv.http.answers import Answer, text
from gossipkv.http.read_context import GET, check_name, checked_origin, read_from, refused, unanswered
from gossipkv.http.read_options import read_options

if TYPE_CHECKING:
    from gossipkv.http.answers import Header, Request
    from gossipkv.http.read_context import ReadContext
    from gossipkv.http.read_options import ReadOptions
    from gossipkv.http.target import Target
    from gossipkv.wire.rpc import Value

PROXIED_TO: Final = b"X-Sequins-Proxied-To"


async def read_one(context: ReadContext, request: Request, target: Target) -> Answer:
    """Return the answer to GET or HEAD of a key."""
    database, key = target.database, target.key
    if request.method not in GET or database is None or key is None:
        return unanswered(request, target)
    options = None
    try:
        check_name(database)
        options = read_options(request.headers, target, database, alone=context.alone, session=context.session)
        value, origin, node = await _get(context, database, key, options)
    except GossipKVError as error:
        return refused(error, options)
    about = [*read_from(context, database, origin), *_proxied_to(node, context.node_name)]
    if value is None:
        missing = text(404, f"{database if isinstance(origin, bytes) else f'{database} {origin}'} has no such key")
        return Answer(404, [*missing.headers, *about], missing.body)
    content_type = context.content_type_of(database)
    if isinstance(origin, bytes):  # Of a table: it may be another value by now, so nothing validates it.
        return Answer(200, [(b"Content-Type", content_type), *about], value)
    time_s = await context.times.of(database, origin)
    tag = conditions.entity_tag(origin, value)
    found = conditions.Found(value, tag, time_s, content_type, about)
    return conditions.answer(request.method, request.headers, found)


async def _get(
    context: ReadContext, database: str, key: bytes, options: ReadOptions
) -> tuple[bytes | None, str | bytes, str | None]:
    """Value, version or token, and the node that answered where that is told."""
    wire = {**options.wire, "explain": True}
    result = await context.ask.call("get", database, key, wire, timeout_ms=options.timeout_ms)
    match result:
        case [bytes() | None as value, origin, *told]:
            return value, checked_origin(origin), _node(told)
    raise ProtocolError("get was answered with something else than a value and a version")


def _node(told: list[Value]) -> str | None:
    match told:
        case [{"node": str(node)}, *_] if node.isprintable():
            return node
    return None


def _proxied_to(node: str | None, asked: str | None) -> list[Header]:
    return [] if node is None or node == asked else [(PROXIED_TO, node.encode())]
