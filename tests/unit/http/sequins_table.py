"""Sequins' requests and their answers, line by line.

A database `baby-names` has the version `2`, made at 11:56:27 on 1 August 2016, and `1`, which is being retired; a
database `coming` has none yet. The asked node is `n1`, and only `n2` holds the partition of the key `away`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TABLE = """
| request | status | headers | body |
|---|---|---|---|
| `GET /baby-names/1881/boy` | 200 | `X-Sequins-Version: 2` `Content-Length: 6` `Accept-Ranges: bytes` | `Johnny` |
| `GET /baby-names/1881/boy` | 200 | `Last-Modified: Mon, 01 Aug 2016 11:56:27 GMT` | `Johnny` |
| `GET /baby-names/1881%2Fboy` | 200 | `X-Sequins-Version: 2` | `Johnny` |
| `GET http://localhost:9599/baby-names/1881/boy` | 200 | `X-Sequins-Version: 2` | `Johnny` |
| `HEAD /baby-names/1881/boy` | 200 | `X-Sequins-Version: 2` `Content-Length: 6` | |
| `GET /baby-names/foo` | 404 | `X-Sequins-Version: 2` | |
| `GET /otherdb/foo` | 404 | no `X-Sequins-Version` | |
| `GET /coming/foo` | 404 | no `X-Sequins-Version` | |
| `GET /baby-names` | 400 | | |
| `GET //foo` | 400 | | |
| `POST /baby-names/1881/boy` | 405 | `Allow: GET, HEAD, OPTIONS` | |
| `PUT /baby-names/1881/boy` | 405 | `Allow: GET, HEAD, OPTIONS` | |
| `DELETE /baby-names/1881/boy` | 405 | `Allow: GET, HEAD, OPTIONS` | |
| `GET /baby-names/away` | 200 | `X-Sequins-Version: 2` `X-Sequins-Proxied-To: n2` | `from n2` |
| `GET /baby-names/1881/boy?proxy=2` | 200 | `X-Sequins-Version: 2` no `X-Sequins-Proxied-To` | `Johnny` |
| `GET /baby-names/1881/boy?proxy=1` | 200 | `X-Sequins-Version: 1` | `John` |
| `GET /baby-names/1881/boy?proxy=true` | 200 | `X-Sequins-Version: 2` | `Johnny` |
| `GET /baby-names/1881/boy?proxy=` | 200 | `X-Sequins-Version: 2` | `Johnny` |
| `GET /baby-names/foo?proxy=2` | 404 | `X-Sequins-Version: 2` | |
| `GET /baby-names/away?proxy=2` | 500 | no `X-Sequins-Version` | |
| `GET /baby-names/away?proxy=true` | 500 | no `X-Sequins-Version` | |
| `GET /otherdb/foo?proxy=1` | 501 | no `X-Sequins-Version` | |
| `GET /coming/foo?proxy=true` | 501 | no `X-Sequins-Version` | |
| `GET /baby-names/foo?proxy=3` | 500 | no `X-Sequins-Version` | |
"""


class Line(NamedTuple):
    """A request, and its answer."""

    method: str
    target: str
    status: int
    headers: dict[str, str]
    absent: list[str]
    body: str | None

    def check(self, status, headers, body):
        """Check an answer; header names are in lower case."""
        assert status == self.status, (self, body)
        for name, value in self.headers.items():
            assert headers[name.lower()] == value, (self, headers)
        for name in self.absent:
            assert name.lower() not in headers, (self, headers)
        if self.body is not None:
            assert body == self.body.encode(), self
        if self.method == "HEAD":
            assert body == b"", self


def lines():
    found = []
    for row in TABLE.strip().splitlines()[2:]:
        request, status, headers, body = (cell.strip() for cell in row.strip("|").split("|"))
        method, target = request.strip("`").split(" ")
        absent = re.findall(r"no `([\w-]+)`", headers)
        named = dict(re.findall(r"`([\w-]+): ([^`]+)`", headers))
        found.append(Line(method, target, int(status), named, absent, body.strip("`") or None))
    return found
