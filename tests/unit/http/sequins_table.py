"""The table of Sequins' requests in docs/users/http.md, line by line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGE = (Path(__file__).parents[3] / "docs" / "users" / "http.md").read_text(encoding="utf-8")


class Line(NamedTuple):
    """A request, and the page's statement of its answer."""

    method: str
    target: str
    status: int
    headers: dict[str, str]
    absent: list[str]
    body: str | None

    def check(self, status, headers, body):
        """Check an answer against the page; header names are in lower case."""
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
    table = PAGE.split("| request | status | headers | body |\n")[1].split("\n\n")[0]
    found = []
    for row in table.splitlines()[1:]:
        request, status, headers, body = (cell.strip() for cell in row.strip("|").split("|"))
        method, target = request.strip("`").split(" ")
        absent = re.findall(r"no `([\w-]+)`", headers)
        named = dict(re.findall(r"`([\w-]+): ([^`]+)`", headers))
        found.append(Line(method, target, int(status), named, absent, body.strip("`") or None))
    return found
