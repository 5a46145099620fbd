"""Request-smuggling streams, on whose message boundaries two readers may disagree.

Each has a second request within a body or an apparent body: a get whose value is `SMUGGLED`.
"""

from __future__ import annotations

from typing import NamedTuple

SMUGGLED = b"0123456789"
INNER = b"GET /db/ten HTTP/1.1\r\nHost: h\r\n\r\n"


class Attack(NamedTuple):
    """A stream, and the statuses of its answers."""

    stream: bytes
    statuses: tuple[int, ...]


def _get(*fields: bytes, line: bytes = b"GET /db/k HTTP/1.1", body: bytes = INNER) -> bytes:
    return b"\r\n".join([line, *(fields if b"Host: h" in b"".join(fields) else (b"Host: h", *fields)), b"", body])


def _post(*fields: bytes, body: bytes = INNER) -> bytes:
    return _get(*fields, line=b"POST /db/_mget HTTP/1.1", body=body)


LENGTH = b"Content-Length: %d" % len(INNER)
CHUNKED = b"Transfer-Encoding: chunked"
CHUNK = b"%x\r\n%b\r\n0\r\n\r\n" % (len(INNER), INNER)
EMPTY_CHUNKS = b"0\r\n\r\n"
SMALL = b"Content-Length: 4"

# Each stream is refused, or its answer is the last one; then the connection ends.
ATTACKS = {
    # One reader uses the first of two lengths, another the second.
    "CL.TE": Attack(_post(b"Content-Length: 38", CHUNKED, body=EMPTY_CHUNKS + INNER), (400,)),
    "TE.CL": Attack(_post(CHUNKED, SMALL, body=CHUNK), (400,)),
    "CL.CL": Attack(_post(b"Content-Length: 0", LENGTH), (400,)),
    "CL, CL": Attack(_post(b"Content-Length: 0, %d" % len(INNER)), (400,)),
    "CL.CL alike, of a GET": Attack(_get(LENGTH, LENGTH), (400,)),
    # A reader that expects no body of GET takes the body for a request.
    "a body of GET": Attack(_get(LENGTH), (400,)),
    "chunks of GET": Attack(_get(CHUNKED, body=CHUNK), (400,)),
    "empty chunks of GET": Attack(_get(CHUNKED, body=EMPTY_CHUNKS + INNER), (400,)),
    "a body of HEAD": Attack(_get(LENGTH, line=b"HEAD /db/k HTTP/1.1"), (400,)),
    "a body of OPTIONS": Attack(_get(LENGTH, line=b"OPTIONS /db/k HTTP/1.1"), (400,)),
    "a body of PATCH": Attack(_get(LENGTH, line=b"PATCH /db/k HTTP/1.1"), (405,)),
    "chunks of PATCH": Attack(_get(CHUNKED, line=b"PATCH /db/k HTTP/1.1", body=CHUNK), (405,)),
    "two lengths of PUT": Attack(_get(SMALL, LENGTH, line=b"PUT /db/k HTTP/1.1"), (400,)),
    "two lengths of PUT in one": Attack(
        _get(b"Content-Length: 4, %d" % len(INNER), line=b"PUT /db/k HTTP/1.1"), (400,)
    ),
    "chunks and a length of PUT": Attack(_get(CHUNKED, SMALL, line=b"PUT /db/k HTTP/1.1", body=CHUNK), (400,)),
    "a length of PUT with a sign": Attack(_get(b"Content-Length: +4", line=b"PUT /db/k HTTP/1.1"), (400,)),
    "a length of PUT in a line that goes on": Attack(
        _get(b"Content-Length: 4", b" 0", line=b"PUT /db/k HTTP/1.1"), (400,)
    ),
    "a length of PUT that overflows": Attack(
        _get(b"Content-Length: 18446744073709551617", line=b"PUT /db/k HTTP/1.1"), (413,)
    ),
    "a body that is waited for": Attack(_get(LENGTH, b"Expect: 100-continue"), (400,)),
    # The length is invalid.
    "CL with a sign": Attack(_post(b"Content-Length: +%d" % len(INNER)), (400,)),
    "CL below nothing": Attack(_post(b"Content-Length: -1"), (400,)),
    "CL in hexadecimal": Attack(_post(b"Content-Length: 0x22"), (400,)),
    "CL with a blank in it": Attack(_post(b"Content-Length: 3 4"), (400,)),
    "CL without digits": Attack(_post(b"Content-Length:"), (400,)),
    "CL of 2^64": Attack(_post(b"Content-Length: 18446744073709551616"), (413,)),
    # TE.TE: one reader knows the coding and another does not.
    "TE of another name": Attack(_post(b"Transfer-Encoding: xchunked", LENGTH), (501,)),
    "TE quoted": Attack(_post(b'Transfer-Encoding: "chunked"', body=CHUNK), (501,)),
    "TE behind a vertical tab": Attack(_post(b"Transfer-Encoding: \x0bchunked", body=CHUNK), (400,)),
    "TE behind a tab, of GET": Attack(_get(b"Transfer-Encoding:\tchunked", body=CHUNK), (400,)),
    "TE of two codings": Attack(_post(b"Transfer-Encoding: chunked, identity", body=CHUNK), (501,)),
    "TE of none, then chunks": Attack(_post(b"Transfer-Encoding: identity, chunked", body=CHUNK), (501,)),
    "TE twice": Attack(_post(CHUNKED, b"Transfer-Encoding: identity", body=CHUNK), (501,)),
    "TE twice alike": Attack(_post(CHUNKED, CHUNKED, body=CHUNK), (501,)),
    "TE before a colon that is not next to it": Attack(_get(b"Transfer-Encoding : chunked", body=CHUNK), (400,)),
    "TE behind a blank": Attack(_get(b"Accept: x", b" Transfer-Encoding: chunked", body=CHUNK), (400,)),
    "TE over two lines": Attack(_get(b"Transfer-Encoding:", b" chunked", body=CHUNK), (400,)),
    "TE behind LF": Attack(_get(b"Accept: x\nTransfer-Encoding: chunked", body=CHUNK), (400,)),
    "TE behind CR": Attack(_get(b"Accept: x\rTransfer-Encoding: chunked", body=CHUNK), (400,)),
    "TE with NUL": Attack(_get(b"Transfer-Encoding\0: chunked", body=CHUNK), (400,)),
    "TE with a letter that is none": Attack(_get(b"Transfer-Encod\xefng: chunked", body=CHUNK), (400,)),
    "chunks of HTTP/1.0": Attack(_get(CHUNKED, line=b"POST /db/_mget HTTP/1.0", body=EMPTY_CHUNKS + INNER), (200,)),
    # Sizes of chunks.
    "a chunk below nothing": Attack(_post(CHUNKED, body=b"-1\r\n" + INNER), (400,)),
    "a chunk of 0x": Attack(_post(CHUNKED, body=b"0x0\r\n\r\n" + INNER), (400,)),
    "a chunk behind a blank": Attack(_post(CHUNKED, body=b" 0\r\n\r\n" + INNER), (400,)),
    "a chunk that ends with LF": Attack(_post(CHUNKED, body=b"0\n\n" + INNER), (400,)),
    "a chunk of 2^64 + 4": Attack(_post(CHUNKED, body=b"10000000000000004\r\n\r\n\r\n\r\n" + INNER), (413,)),
    "a chunk longer than it says": Attack(_post(CHUNKED, body=b"1\r\nab\r\n0\r\n\r\n" + INNER), (400,)),
    "a chunk's extension with LF": Attack(_post(CHUNKED, body=b"0;x\ny\r\n\r\n" + INNER), (400,)),
    # The end of the head, and the parts of a header line.
    "bare LF": Attack(_get().replace(b"\r\n", b"\n"), (400,)),
    "bare LF between headers": Attack(_get(b"Accept: x\nCookie: y"), (400,)),
    "a head that ends with LF LF": Attack(b"GET /db/k HTTP/1.1\r\nHost: h\n\n" + INNER, (400,)),
    "a head that ends with CR LF LF": Attack(b"GET /db/k HTTP/1.1\r\nHost: h\r\n\n" + INNER, (400,)),
    "CR alone": Attack(_get(b"Accept: x\rCookie: y"), (400,)),
    "CR CR LF": Attack(_get(b"Accept: x\r"), (400,)),
    "CR alone in the request line": Attack(_get(line=b"GET /db/k\r HTTP/1.1"), (400,)),
    "NUL in a value": Attack(_get(b"Accept: a\0b"), (400,)),
    "NUL in the target": Attack(_get(line=b"GET /db/k\0 HTTP/1.1"), (400,)),
    "a first header that goes on": Attack(b"GET /db/k HTTP/1.1\r\n Host: h\r\nHost: h\r\n\r\n" + INNER, (400,)),
    "a header without a name": Attack(_get(b": x"), (400,)),
    "a header without a colon": Attack(_get(b"Content-Length"), (400,)),
    "a name with a blank": Attack(_get(b"Content Length: 34"), (400,)),
    # The host of the request.
    "two hosts": Attack(_get(b"Host: h", b"Host: i"), (400,)),
    "two hosts alike": Attack(_get(b"Host: h", b"Host: h"), (400,)),
    "a host over two lines": Attack(_get(b"Host: h", b"\tost: i"), (400,)),
    "no host": Attack(b"GET /db/k HTTP/1.1\r\n\r\n" + INNER, (400,)),
    # The request line.
    "two versions": Attack(_get(line=b"GET /db/k HTTP/1.1 HTTP/1.1"), (400,)),
    "no version": Attack(_get(line=b"GET /db/k"), (400,)),
    "another version's letters": Attack(_get(line=b"GET /db/k http/1.1"), (400,)),
    "HTTP/2.0": Attack(_get(line=b"PRI * HTTP/2.0"), (505,)),
    "HTTP/1.0": Attack(_get(b"Connection: keep-alive", line=b"GET /db/k HTTP/1.0"), (200,)),
    "tabs": Attack(_get(line=b"GET\t/db/k\tHTTP/1.1"), (400,)),
    "two blanks": Attack(_get(line=b"GET  /db/k HTTP/1.1"), (400,)),
    "a blank behind": Attack(_get(line=b"GET /db/k HTTP/1.1 "), (400,)),
    "a blank before": Attack(_get(line=b" GET /db/k HTTP/1.1"), (400,)),
    "a blank in the target": Attack(_get(line=b"GET /db/k x HTTP/1.1"), (400,)),
    "CONNECT": Attack(_get(line=b"CONNECT h:80 HTTP/1.1"), (400,)),
    "two empty lines before": Attack(b"\r\n\r\n\r\n" + INNER, (400,)),
    # The bytes behind the last request.
    "another protocol": Attack(_get(b"Connection: Upgrade", b"Upgrade: h2c"), (200,)),
    "close among others": Attack(_get(b"Connection: keep-alive, close"), (200,)),
    "keep-alive, and close": Attack(_get(b"Connection: keep-alive", b"Connection: close"), (200,)),
    "an expectation of another kind": Attack(_get(b"Expect: 200-ok"), (417,)),
}
# Odd streams with undisputed boundaries: the request behind is answered, and the one within is not.
FOLLOWED = {
    "a body of POST": Attack(_post(b"Content-Length: 3", body=b'"k"' + INNER), (200, 200)),
    "a body of PUT": Attack(_get(LENGTH, line=b"PUT /db/k HTTP/1.1", body=INNER + INNER), (405, 200)),
    "chunks of PUT": Attack(_get(CHUNKED, line=b"PUT /db/k HTTP/1.1", body=CHUNK + INNER), (405, 200)),
    "chunks of DELETE": Attack(_get(CHUNKED, line=b"DELETE /db/k HTTP/1.1", body=CHUNK + INNER), (400, 200)),
    "PUT without a length": Attack(_get(line=b"PUT /db/k HTTP/1.1"), (405, 200)),
    "a length of PUT with zeros before": Attack(
        _get(b"Content-Length: 00%d" % len(INNER), line=b"PUT /db/k HTTP/1.1", body=INNER + INNER), (405, 200)
    ),
    "chunks of POST": Attack(_post(CHUNKED, body=b'3\r\n"k"\r\n0\r\n\r\n' + INNER), (200, 200)),
    "a body that has a request in it": Attack(_post(LENGTH), (400,)),
    "no body of GET": Attack(_get(b"Content-Length: 0"), (200, 200)),
    "a target with a scheme of another kind": Attack(_get(line=b"GET gopher://other/db/k HTTP/1.1"), (400, 200)),
    "a target with a scheme": Attack(_get(line=b"GET http://other/db/k HTTP/1.1"), (200, 200)),
    "an empty line before": Attack(b"\r\n" + _get(), (200, 200)),
    "an expectation without a body": Attack(_get(b"Expect: 100-continue"), (200, 200)),
    "a header that nobody knows": Attack(_get(b"Transfer_Encoding: chunked"), (200, 200)),
    "a condition that the gateway reads": Attack(_get(b"If-Modified-Since: never"), (200, 200)),
}
