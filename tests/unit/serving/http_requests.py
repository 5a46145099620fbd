"""HTTP requests as programs send them, and with changed bytes, lines or headers.

A `random.Random` draws everything, so that a seed identifies a stream.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from tests.oracle.http import LONGEST_HEAD, LONGEST_TAG, entity_tag
from tests.unit.serving.http_world import FAILED, RECORDS, TABLE, VERSIONS, result_of

if TYPE_CHECKING:
    import random

T = TypeVar("T")

# Heads without the request line, as present programs send them.
HEADS = [
    b"Host: localhost:7072\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n",
    (
        b"Host: localhost:7072\r\nConnection: keep-alive\r\nCache-Control: max-age=0\r\n"
        b'sec-ch-ua: "Chromium";v="130", "Not?A_Brand";v="99"\r\nsec-ch-ua-mobile: ?0\r\n'
        b"Upgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like "
        b"Gecko) Chrome/130.0.0.0 Safari/537.36\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,"
        b"image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7\r\nSec-Fetch-Site: none\r\n"
        b"Sec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nAccept-Encoding: gzip, deflate, br, "
        b"zstd\r\nAccept-Language: de-DE,de;q=0.9,en;q=0.8\r\nCookie: session=a%20b; other=\r\n"
    ),
    (
        b"Host: [::1]:7072\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0\r\n"
        b"Accept: */*\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nDNT: 1\r\n"
        b"Referer: http://[::1]:7072/db/\r\nOrigin: http://[::1]:7072\r\nConnection: keep-alive\r\nPriority: u=0, i\r\n"
        b"Pragma: no-cache\r\n"
    ),
    (
        b"Host: node\r\nUser-Agent: python-requests/2.32.3\r\nAccept-Encoding: gzip, deflate\r\nAccept: */*\r\n"
        b"Connection: keep-alive\r\n"
    ),
    b"Accept-Encoding: identity\r\nHost: node:7072\r\nUser-Agent: Python-urllib/3.11\r\nConnection: close\r\n",
    b"Host: 127.0.0.1:7072\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip\r\n",
    b"Host: 127.0.0.1:7072\r\n",
    (
        b"host: node\r\nconnection: keep-alive\r\naccept: */*\r\naccept-language: *\r\nsec-fetch-mode: cors\r\n"
        b"user-agent: node\r\naccept-encoding: br, gzip, deflate\r\n"
    ),
    (
        b"Host: upstream\r\nX-Real-IP: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.1, 10.0.0.2\r\nX-Forwarded-Proto: https\r\n"
        b"X-Forwarded-Host: example.org\r\nVia: 1.1 proxy\r\nForwarded: for=10.0.0.1;proto=https\r\n"
    ),
    (
        b"host: node\r\nx-request-id: 4bf92f35-77b3\r\n"
        b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\ntracestate: rojo=00f0\r\n"
        b"user-agent: \xc3\xa9\r\n"
    ),
]
ODD_HEADS = [
    (
        b"Host: node:7072\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIA\r\nUpgrade: h2c\r\n"
        b"User-Agent: Java-http-client/21\r\n"
    ),
    b"Host: node\r\nUser-Agent: hey/0.0.1\r\nContent-Type: text/html\r\nAccept-Encoding: gzip\r\n",
]
DATABASES = [*[*RECORDS, TABLE] * 6, "db", *FAILED, "none", "metrics", "debug", "static"]
KEYS = [*RECORDS["db"], *RECORDS["db"], b"gone", b"_mget", b"x" * 300]
TAGS = [b"*", b'""', b'"x"', b'W/"x"', b'"a,b"', b'"\xc3\xa9"', b'"%b"' % (b"t" * (LONGEST_TAG - 2))]
ODD_TAGS = [b'"a b"', b'"x", "y"', b"x", b'"', b'w/"x"', b"*, *", b"", b'W/"%b"' % (b"t" * (LONGEST_TAG - 3))]
TOKENS = [b"AP90b2tlbg==", b"dG8=", b"dG9r", b"+/+/", b""]
ODD_TOKENS = [b"dG8", b"dG9r,dG9r", b"d-8=", b"=", b"====", b"dG=v", b"dG9r dG9r", b"\xff"]
BODIES = [b"", b"v", b"\r\n\r\n", b"GET /db/ten HTTP/1.1\r\nHost: h\r\n\r\n", b"\0\xff" * 4000]
RANGES = [
    b"bytes=0-0", b"bytes=0-", b"bytes=-1", b"bytes=-0", b"bytes=2-5", b"bytes=9-9", b"bytes=10-", b"bytes=-5000",
    b"bytes=0-999999999999999999", b"bytes=999999999999999999-", b"bytes=007-0008",
]  # fmt: skip
ODD_RANGES = [
    b"bytes=-", b"bytes=", b"bytes=3-2", b"bytes=0-1,3-4", b"Bytes=0-1", b"bytes =0-1", b"bytes= 0-1", b"items=0-1",
    b"bytes=0-9999999999999999999", b"",
]  # fmt: skip
LINES = [
    b"Content-Length: 00", b"Content-Length: 1", b"Content-Length: +1", b"GossipKV-Token: dG9r",
    b"Host: other", b"Content-Length: 0", b"Content-Length: 5", b"Transfer-Encoding: chunked", b"Expect: 100-continue",
    b"Connection: close", b"Connection: Keep-Alive", b"Connection: close, TE", b"Connection:", b"Upgrade: websocket",
    b"TE: trailers", b"If-Match: *", b"If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", b'If-Range: "x"',
    b"Authorization: Basic YTpi", b"X-Sequins-Version: v1", b"X-GossipKV-Timeout-Ms: 100", b"Cookie: a=b", b"Sec-X: y",
    b"Secret: x", b"Accept: a\x00b", b"Accept: a\x01b", b"Accept: a\x7fb", b"Accept: \xff\t\x80", b"Accept:", b": x",
    b"x", b"Accept : x", b" Accept: x", b"\tAccept: x", b"Acc\xe9pt: x", b"Accept: a\x0bb", b"Sec-(: x",
]  # fmt: skip
BYTES = b'\r\n\0\t :/?%#\x0b\x7f\x80\xff"*,;=aZ09-_'
IN_TARGETS = [
    b"%", b"%2", b"%zz", b"%00", b"%2F", b"%25", b"/", b"//", b"?", b"?proxy=true", b"#", b"+", b" ", b"\t", b"*",
    b"\xc3\xbc",
]  # fmt: skip
VERSIONS_OF_HTTP = [
    b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"http/1.1", b"HTTP/1.1 ", b" HTTP/1.1", b"HTTP/1.1 HTTP/1.1", b"HTTP/01.1",
    b"",
]  # fmt: skip
METHODS = [b"POST", b"PUT", b"get", b"GETT", b"OPTIONS", b"CONNECT", b"HEAD ", b"PRI", b""]


def write(draw: random.Random, head: bytes) -> tuple[bytes, bytes]:
    """Return head and body of a program's write, usually to the table."""
    database, key = _often(draw, [TABLE], DATABASES), draw.choice(KEYS)
    method = draw.choice([b"PUT", b"PUT", b"DELETE"])
    body = draw.choice(BODIES) if method == b"PUT" else b""
    if method == b"PUT" or draw.random() < 0.2:
        head += b"Content-Length: %d\r\n" % len(body)
    head += _shown(draw)
    return b"%b /%b/%b HTTP/1.1\r\n%b\r\n" % (method, database.encode(), escaped(draw, key), head), body


def _shown(draw: random.Random) -> bytes:
    return b"GossipKV-Token: %b\r\n" % _often(draw, TOKENS, ODD_TOKENS) if draw.random() < 0.3 else b""


def request(draw: random.Random, head: bytes) -> bytes:
    """Return a program's request, usually for a key that exists."""
    database, key = draw.choice(DATABASES), draw.choice(KEYS)
    head += _shown(draw)
    if draw.random() < 0.3:
        head += b"Range: %b\r\n" % _often(draw, RANGES, ODD_RANGES)
    if draw.random() < 0.3:
        value = getattr(result_of(database, key), "value", None)
        own = []
        if value is not None:
            version = VERSIONS.get(database, str(len(value)))
            own = [
                form % entity_tag(version, of).encode()
                for form, of in ((b"%b", value), (b"W/%b", value), (b"%b", value + b"x"))
            ]
        head += b"If-None-Match: %b\r\n" % _often(draw, TAGS + own * 3, ODD_TAGS)
    target = b"/%b/%b" % (database.encode(), escaped(draw, key))
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (draw.choice([b"GET", b"GET", b"HEAD"]), target, head)


def _often(draw: random.Random, usual: list[T], odd: list[T]) -> T:
    return draw.choice(odd if draw.random() < 0.1 else usual)


def escaped(draw: random.Random, key: bytes) -> bytes:
    """Return a key in a target: required escapes, and sometimes unneeded ones."""
    form = draw.choice([b"%%%02X", b"%%%02x"])
    rare = draw.random() < 0.2
    return b"".join(
        form % byte if not 0x21 <= byte <= 0x7E or byte in b"%?" or (rare and draw.random() < 0.5) else bytes([byte])
        for byte in key
    )


def spoiled(draw: random.Random, head: bytes) -> bytes:
    """Return the head with a change that a program, a proxy or an attacker may make."""
    return draw.choice(CHANGES)(draw, head)


def _byte(draw: random.Random, head: bytes) -> bytes:
    """Change, insert or remove a byte."""
    at = draw.randrange(len(head) + 1)
    put = bytes([draw.choice(BYTES)]) if draw.random() < 0.8 else b""
    return head[:at] + put + head[at + draw.randrange(2) :]


def _bit(draw: random.Random, head: bytes) -> bytes:
    at = draw.randrange(len(head))
    return head[:at] + bytes([head[at] ^ 1 << draw.randrange(8)]) + head[at + 1 :]


def _lines(draw: random.Random, head: bytes) -> bytes:
    """Duplicate, remove, shuffle or fold header lines."""
    line, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    at = draw.randrange(len(lines)) if lines else 0
    match draw.randrange(4):
        case 0:
            lines[at:at] = lines[at : at + 1]
        case 1:
            del lines[at : at + 1]
        case 2:
            draw.shuffle(lines)
        case _:
            lines[at : at + 1] = [
                each.replace(b" ", draw.choice([b"\r\n ", b"\r\n\t"]), 1) for each in lines[at : at + 1]
            ]
    return b"\r\n".join([line, *lines, b"", b""])


def _line_end(draw: random.Random, head: bytes) -> bytes:
    parts = head.split(b"\r\n")
    at = draw.randrange(1, len(parts)) if len(parts) > 1 else 0
    end = draw.choice([b"\n", b"\r", b"", b"\r\r\n", b"\n\r", b"\r\n\r\n"])
    return b"\r\n".join(parts[:at]) + end + b"\r\n".join(parts[at:])


def _case(draw: random.Random, head: bytes) -> bytes:
    """Change the case of a name or the blanks around a value; the meaning stays."""
    line, end, rest = head.partition(b"\r\n")
    fields = rest.split(b"\r\n")
    at = draw.randrange(len(fields))
    name, colon, value = fields[at].partition(b":")
    blanks = [b"", b" ", b"\t", b" \t  "]
    if colon:
        name = draw.choice([name.upper(), name.lower(), name.swapcase()])
        fields[at] = name + colon + draw.choice(blanks) + value.strip() + draw.choice(blanks)
    return line + end + b"\r\n".join(fields)


def _further(draw: random.Random, head: bytes) -> bytes:
    further = draw.choice(LINES)
    if draw.random() < 0.5:
        return head.replace(b"\r\n", b"\r\n%b\r\n" % further, 1)
    return head.removesuffix(b"\r\n") + further + b"\r\n\r\n"


def _target(draw: random.Random, head: bytes) -> bytes:
    method, _, rest = head.partition(b" ")
    target, _, rest = rest.partition(b" ")
    if draw.random() < 0.2:
        target = draw.choice([b"http://h", b"HTTPS://h:1", b"http:", b"*", b"h:443"]) + target
    else:
        at = draw.randrange(len(target) + 1)
        target = target[:at] + draw.choice(IN_TARGETS) + target[at:]
    return b" ".join([method, target, rest])


def _request_line(draw: random.Random, head: bytes) -> bytes:
    if draw.random() < 0.5:
        return head.replace(b"HTTP/1.1", draw.choice(VERSIONS_OF_HTTP), 1)
    return draw.choice(METHODS) + b" " + head.partition(b" ")[2]


def _long(draw: random.Random, head: bytes) -> bytes:
    """Extend the head to about the size limit, or to about the limit of headers."""
    if draw.random() < 0.5:
        here = head.count(b"\r\n") - 2
        return head.removesuffix(b"\r\n") + b"Via: x\r\n" * (100 + draw.randint(-1, 1) - here) + b"\r\n"
    more = LONGEST_HEAD - len(head) - len(b"Cookie: \r\n") + draw.randint(-2, 2)
    return head.removesuffix(b"\r\n") + b"Cookie: " + b"c" * more + b"\r\n\r\n"


def _around(draw: random.Random, head: bytes) -> bytes:
    """Put bytes before or behind the head, or truncate the head."""
    match draw.randrange(3):
        case 0:
            return draw.choice([b"\r\n", b"\n", b" ", b"\0", b"\x16\x03\x01", b"\x94\x00\x01", b"*1\r\n"]) + head
        case 1:
            return head + draw.choice([b"\r\n", b"body", b"0\r\n\r\n", b"\0"])
        case _:
            return head[: draw.randint(1, len(head))]


CHANGES = [
    _byte,
    _byte,
    _bit,
    _lines,
    _line_end,
    _case,
    _case,
    _further,
    _further,
    _target,
    _request_line,
    _long,
    _around,
]


def stream(draw: random.Random, requests: int) -> bytes:
    """Return a stream of requests by one program, or several behind a proxy; most but the last are valid."""
    said, program = b"", _often(draw, HEADS, ODD_HEADS)
    for left in reversed(range(requests)):
        if draw.random() < 0.3:
            program = _often(draw, HEADS, ODD_HEADS)
        head, body = write(draw, program) if draw.random() < 0.3 else (request(draw, program), b"")
        while draw.random() < (0.1 if left else 0.5):
            head = spoiled(draw, head)
        said += head + body
    return said


def cut(draw: random.Random, data: bytes) -> list[bytes]:
    """Return the pieces in which a stream arrives."""
    at = [0, *sorted(draw.randrange(len(data)) for _ in range(draw.choice([0, 1, 1, 3, 10]))), len(data)]
    return [data[begin:end] for begin, end in pairwise(at) if begin < end]
