"""What all reads have in common: whom they ask, and what an error of the wire is by HTTP.

Sequins' statuses, with the wire's code beside them.  A 404 that names the version says that the version has no such
key; one that names none, that there is no such database or that nothing of it is ready yet.  Towards a node that passes
on a request (`?proxy`) a 404 would mean the former, so what is not here is 501 or 500 there.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from gossipkv.errors import WRITES_ARE, GossipKVError, NotReady, ProtocolError, UnknownDatabase, UnknownVersion
from gossipkv.http.answers import Answer, refusal, text
from gossipkv.http.source_times import SourceTimes
from gossipkv.http.target import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.http.answers import Asker, Header, Request
    from gossipkv.http.read_options import ReadOptions, Session
    from gossipkv.http.target import Target

VERSION: Final = b"X-Sequins-Version"
TOKEN: Final = b"X-GossipKV-Token"  # Of what was read of a table, in Base64.
NOT_KEPT: Final = (b"Cache-Control", b"no-store")
GET: Final = frozenset({b"GET", b"HEAD"})
ALLOW: Final = (b"Allow", b"GET, HEAD, OPTIONS")
ALLOW_POST: Final = (b"Allow", b"GET, HEAD, POST, OPTIONS")
POSTED: Final = frozenset({b"_mget", b"_scan"})  # The keys to which is posted.

_AGAIN: Final = {429: b"1", 503: b"1"}  # Seconds until another attempt makes sense.


@dataclass(slots=True)
class ReadContext:
    """Whom reads ask, and what they need to know.

    Attributes:
        ask: The client.
        node_name: The name of the node that is asked; None where that may be any.
        content_type_of: What the values of a database are.
        alone: Whether the gateway belongs to no node, so that nothing is here without asking.
        session: What keeps a gateway that asks several nodes from stepping back.
        times: When versions were modified.
    """

    ask: Asker
    node_name: str | None
    content_type_of: Callable[[str], bytes]
    alone: bool = False
    session: Session | None = None
    times: SourceTimes = field(init=False)

    def __post_init__(self) -> None:
        self.times = SourceTimes(self.ask)


def unanswered(request: Request, target: Target) -> Answer:
    """Return the answer to what names no key, or asks for what is never done; Sequins says 400 to both.

    Another method is 405, since who puts where nobody takes it is to read what is allowed in its place.
    """
    allow = ALLOW_POST if target.path == b"*" or target.key in POSTED else ALLOW
    if request.method == b"OPTIONS":
        return Answer(204, [allow])
    if target.path == b"*":
        return text(400, "the target * is for OPTIONS alone")
    if request.method in GET:
        return text(400, "the path has no key: ask for /<database>/<key>, or see /<database>/")
    method = request.method[:20].decode("ascii", "replace")
    answer = text(
        405,
        f"{method} is not done here: GET and HEAD read a key, POST has /<database>/_mget and _scan; {WRITES_ARE}, "
        "though not by HTTP",
    )
    return Answer(405, [*answer.headers, allow], answer.body)


def check_name(database: str) -> None:
    """Accept what a database may be called.

    Raises:
        UnknownDatabase: it may not, so there is none.
    """
    if NAME.fullmatch(database) is None:
        raise UnknownDatabase("there is no such database: names have ASCII letters, digits, - and _")


def refused(error: GossipKVError, options: ReadOptions | None) -> Answer:
    """Return the answer to a read that met an error of the wire; `options`: None where it was not understood."""
    answer = refusal(error)
    is_proxied = options is not None and options.is_proxied
    match error:
        case NotReady() if "database" not in error.details:
            pass  # A table's: it will be soon, and of a dataset there may never be a version.
        case NotReady() if is_proxied or not (options is not None and options.names_version):
            answer = replace(answer, status=501 if is_proxied else 404)
        case UnknownDatabase() if is_proxied:
            answer = replace(answer, status=501)
        case UnknownVersion() if is_proxied:
            answer = replace(answer, status=500)
        case ProtocolError():
            answer = text(502, error.message, "UNAVAILABLE")  # It is the node that spoke badly.
    again = _AGAIN.get(answer.status)
    return answer if again is None else replace(answer, headers=[*answer.headers, (b"Retry-After", again)])


def read_from(context: ReadContext, database: str, told: str | bytes) -> list[Header]:
    """Return the headers that say what was read: a version of a dataset, or how far a table was, which nobody keeps."""
    if isinstance(told, bytes):
        return [NOT_KEPT, *([(TOKEN, b64encode(told))] if told else [])]
    if context.session is not None:
        context.session.saw(database, told)
    return [(VERSION, told.encode())]


def checked_origin(told: object) -> str | bytes:
    """Return the version that an answer names, or a table's token.

    Raises:
        ProtocolError: it can be neither.
    """
    return told if isinstance(told, bytes) else checked_version(told)


def checked_version(version: object) -> str:
    """Return the version that an answer names, which goes into a header.

    Raises:
        ProtocolError: it cannot be one.
    """
    if isinstance(version, str) and NAME.fullmatch(version) is not None:
        return version
    raise ProtocolError("a node answered from a version of which the name is none")
