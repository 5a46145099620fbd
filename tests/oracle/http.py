"""HTTP/1.1 as the pump reads and answers it, slowly: the plain requests of a stream, and the answer to each.

Plain requests are answered at once: gets, and writes to tables that the node has a part of. The first strange request,
and everything after it, goes to the gateway.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from email.utils import formatdate
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tests.oracle.sorted_file import crc32c

if TYPE_CHECKING:
    from collections.abc import Collection

LONGEST_HEAD = 8192
MAX_FIELDS = 100
LONGEST_TAG = 1024
LONGEST_BODY = 65536
ENTITY = rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
HIDDEN = {b"healthz", b"livez", b"readyz", b"metrics", b"debug", b"static"}
READS = {b"GET", b"HEAD"}
UNREPEATED = {b"connection", b"range", b"if-none-match", b"gossipkv-token", b"content-length"}
# Headers that change no answer of a read, after those that may.
KNOWN = UNREPEATED | {
    b"host", b"user-agent", b"accept", b"accept-encoding", b"accept-language", b"cache-control", b"pragma", b"referer",
    b"cookie", b"dnt", b"origin", b"via", b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto",
    b"x-real-ip", b"x-request-id", b"traceparent", b"tracestate", b"priority", b"upgrade-insecure-requests",
    b"x-forwarded-port", b"x-correlation-id", b"x-amzn-trace-id", b"baggage", b"b3", b"content-type",
}  # fmt: skip

PHRASES = {
    200: "OK", 202: "Accepted", 204: "No Content", 206: "Partial Content", 304: "Not Modified", 400: "Bad Request",
    401: "Unauthorized", 404: "Not Found",
    409: "Conflict", 410: "Gone", 413: "Content Too Large", 416: "Range Not Satisfiable",
    429: "Too Many Requests", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway",
    503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip
STATUSES = {
    "BAD_REQUEST": 400, "UNAUTHORIZED": 401, "UNKNOWN_DATABASE": 404, "UNKNOWN_VERSION": 404, "CONFLICT": 409,
    "STALE_CONFIG": 409, "WRITE_LOST": 410, "TOO_LARGE": 413, "OVERLOADED": 429, "CORRUPT": 500, "INTERNAL": 500,
    "NOT_SERVED": 500, "UNKNOWN_METHOD": 501, "UNAVAILABLE": 502, "NOT_READY": 503, "TIMEOUT": 504, "UNKNOWN": 504,
    "TOO_OLD": 410,
}  # fmt: skip
TEXT = "Content-Type: text/plain; charset=utf-8"


class StrangeError(Exception):
    """A head that is not plain."""


class Plain(NamedTuple):
    """A request that is answered at once; `part`: first and last as written, None if missing."""

    method: bytes
    database: bytes
    key: bytes
    closes: bool
    part: tuple[int | None, int | None] | None
    tag: bytes | None
    token: bytes = b""
    length: int = 0  # Length of the body.
    body: bytes = b""


class Reading(NamedTuple):
    """The plain requests of a stream, and the rest, which begins at `at`."""

    plain: list[Plain]
    at: int
    left: str  # "nothing", "partial", "strange", or "unread" after a request that closes.


@dataclass(frozen=True)
class Found:
    """The result of a read: a value or none, of a version of a dataset, or of a table with its token."""

    value: bytes | None
    version: str | None
    token: bytes = b""
    time_s: int | None = None
    content_type: str = "application/octet-stream"
    other_node: str | None = None  # The node that answered, unless it is the entry node.


class Written(NamedTuple):
    """The result of a write; `token`: None if it was accepted for later."""

    token: bytes | None


class Failed(NamedTuple):
    """A refused read; `names_database`: the dataset has no version yet."""

    code: str
    message: str
    names_database: bool = False


def read(data: bytes, tables: Collection[bytes] = ()) -> Reading:
    """Split a stream into plain requests and the rest; `tables`: those to which writes are plain."""
    plain: list[Plain] = []
    at = 0
    while at < len(data):
        end = data.find(b"\r\n\r\n", at, at + LONGEST_HEAD)
        if end < 0:
            return Reading(plain, at, "partial" if len(data) - at < LONGEST_HEAD else "strange")
        try:
            asked = one(data[at:end])
            demand(asked.method in READS or asked.database in tables)
        except StrangeError:
            return Reading(plain, at, "strange")
        if len(data) < end + 4 + asked.length:
            return Reading(plain, at, "partial")
        at = end + 4 + asked.length
        plain.append(asked._replace(body=data[end + 4 : at]))
        if plain[-1].closes:
            return Reading(plain, at, "unread")
    return Reading(plain, at, "nothing")


def one(head: bytes) -> Plain:
    """Parse a head without the empty line that ends it."""
    line, *lines = head.split(b"\r\n")
    asked = re.fullmatch(
        rb"(GET|HEAD|PUT|DELETE) /([-_a-zA-Z0-9]{1,255})/((?:[!-$&->@-~]|%[0-9a-fA-F]{2})+) HTTP/1\.([01])", line
    )
    demand(asked is not None and asked[2] not in HIDDEN and len(lines) <= MAX_FIELDS)
    assert asked is not None
    fields: dict[bytes, list[bytes]] = {}
    for each in lines:
        field = re.fullmatch(rb"([-!#$%&'*+.^_`|~0-9a-zA-Z]+):([\t\x20-\x7e\x80-\xff]*)", each)
        demand(field is not None)
        assert field is not None
        fields.setdefault(field[1].lower(), []).append(field[2].strip(b" \t"))
    demand(all(name in KNOWN or re.fullmatch(rb"sec-[-_a-z0-9]+", name) for name in fields))
    is_old = asked[4] == b"0"  # HTTP/1.0: one request a connection, and no Host header is required.
    demand(len(fields.get(b"host", [])) in ({0, 1} if is_old else {1}))
    demand(all(len(fields.get(name, [])) <= 1 for name in UNREPEATED))
    connection, bounds, tag, length = (
        fields.get(name, [None])[0] for name in (b"connection", b"range", b"if-none-match", b"content-length")
    )
    token = fields.get(b"gossipkv-token", [b""])[0]
    demand(re.fullmatch(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", token) is not None)
    if asked[1] in READS:
        demand(length is None)
    else:
        demand(bounds is None and tag is None and asked[4] == b"1" and (length is not None or asked[1] == b"DELETE"))
        demand(length is None or re.fullmatch(rb"[0-9]{1,5}", length) is not None)
        demand(int(length or b"0") <= (LONGEST_BODY if asked[1] == b"PUT" else 0))
    demand(connection is None or connection.lower() in {b"close", b"keep-alive"})
    demand(tag is None or tag == b"*" or (len(tag) <= LONGEST_TAG and re.fullmatch(ENTITY, tag) is not None))
    key = re.sub(rb"%(..)", lambda escape: bytes([int(escape[1], 16)]), asked[3])
    demand(not is_old or connection is None or connection.lower() == b"close")
    closes = is_old or (connection is not None and connection.lower() == b"close")
    part = None if bounds is None else part_of(bounds)
    return Plain(asked[1], asked[2], key, closes, part, tag, base64.b64decode(token), int(length or b"0"))


def part_of(bounds: bytes) -> tuple[int | None, int | None]:
    found = re.fullmatch(rb"bytes=([0-9]{0,18})-([0-9]{0,18})", bounds)
    demand(found is not None and bool(found[1] or found[2]))
    assert found is not None
    first, last = (int(digits) if digits else None for digits in found.groups())
    demand(first is None or last is None or first <= last)
    return first, last


def demand(holds: bool) -> None:
    """Raise StrangeError if a condition of plain requests fails."""
    if not holds:
        raise StrangeError


GUARDS = (
    "X-Content-Type-Options: nosniff",
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; sandbox",
)


def answer(request: Plain, result: Found | Written | Failed, *, date: str) -> bytes:
    match result:
        case Failed():
            status, fields, body = refused(result)
        case Written(token):
            status, fields, body = (202, [], b"") if token is None else (204, token_field(token), b"")
        case _:
            status, fields, body = told(request, result)
    lines = [f"HTTP/1.1 {status} {PHRASES[status]}", f"Date: {date}", *GUARDS, *fields]
    lines += [f"Content-Length: {len(body)}"] if status not in {204, 304} else []
    lines += ["Connection: close"] if request.closes else []
    head = "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1")
    return head if request.method == b"HEAD" or status == 304 else head + body


def token_field(token: bytes) -> list[str]:
    return [f"GossipKV-Token: {base64.b64encode(token).decode()}"] if token else []


def told(request: Plain, found: Found) -> tuple[int, list[str], bytes]:
    """Return status, headers and body of a value or a miss."""
    of = (
        ["Cache-Control: no-store", *token_field(found.token)]
        if found.version is None
        else [f"X-Sequins-Version: {found.version}"]
    )
    about = [*of, *([] if found.other_node is None else [f"X-Sequins-Proxied-To: {found.other_node}"])]
    kind = f"Content-Type: {found.content_type}"
    if found.value is None:
        read_of = request.database.decode() if found.version is None else f"{request.database.decode()} {found.version}"
        return 404, [TEXT, *about], f"{read_of} has no such key\n".encode()
    tag = entity_tag(str(len(found.value)) if found.version is None else found.version, found.value)
    modified = [] if found.time_s is None else [f"Last-Modified: {formatdate(found.time_s, usegmt=True)}"]
    validators = [f"ETag: {tag}", *modified, *about]
    if request.tag in {b"*", tag.encode(), b"W/" + tag.encode()}:
        return 304, validators, b""
    size = len(found.value)
    bounds = bounds_within(request, size)
    if bounds is None:
        return 200, [kind, "Accept-Ranges: bytes", *validators], found.value
    first, last = bounds
    if first > last:
        line = f"the value has {size} bytes, and the requested range is outside of it\n"
        return 416, [TEXT, f"Content-Range: bytes */{size}", *about], line.encode()
    return 206, [kind, f"Content-Range: bytes {first}-{last}/{size}", *validators], found.value[first : last + 1]


def bounds_within(request: Plain, size: int) -> tuple[int, int] | None:
    """Return first and last position of the requested part; the first is greater if the part is empty.

    None: the whole value is sent.
    """
    if request.part is None or request.method == b"HEAD":
        return None
    first, last = request.part
    if first is not None:
        return first, size - 1 if last is None else min(last, size - 1)
    assert last is not None
    if size == 0 and last:
        return None  # The last bytes of an empty value are the whole value.
    return max(0, size - last), size - 1


@cache
def entity_tag(version: str, value: bytes) -> str:
    return f'"{version}-{crc32c(value):08x}"'


def refused(failed: Failed) -> tuple[int, list[str], bytes]:
    """Return status, headers and body of an error of the wire."""
    status, code, message = STATUSES.get(failed.code), failed.code, failed.message
    if status is None:
        status, code, message = 502, "UNAVAILABLE", f"{code}: {message}"
    if code == "NOT_READY" and failed.names_database:
        status = 404
    again = ["Retry-After: 1"] if status in {429, 503} else ["WWW-Authenticate: Bearer"] if status == 401 else []
    return status, [TEXT, f"X-GossipKV-Error: {code}", *again], " ".join(message.split()).encode() + b"\n"
