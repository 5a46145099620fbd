"""The counts of a load generator over Redis's answers, in plain Python: one pass over a whole stream."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

NUMBER = re.compile(rb"([$*])(-?[0-9]{1,9})\r\n")
LONGEST_LINE = 512
LONGEST_CODE = 40


@dataclass
class Counted:
    """The counts, and the reason why the connection broke, if it did."""

    answered: int = 0
    wrong: int = 0
    misses: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    broken: str | None = None


def count(stream: bytes, asked: list[list[bytes | None]], *, batched: bool) -> Counted:
    """Count the answers; `asked` has the expected values of each request, in the order of sending."""
    counted, at = Counted(), 0
    while at < len(stream) and counted.broken is None:
        if not asked:
            counted.broken = "unasked"
        elif stream[at : at + 1] == b"-":
            end = stream.find(b"\n", at)
            if end < 0:
                break
            code = re.split(rb"[ \r]", stream[at + 1 : end + 1])[0].rstrip(b"\n") if end > at + 1 else b""
            counted.errors[code.decode("utf-8", "backslashreplace") if 0 < len(code) <= LONGEST_CODE else "other"] += 1
            asked.pop(0)
            at = end + 1
        else:
            values = take(stream[at:], len(asked[0]), batched=batched)
            if values is None:
                break
            if isinstance(values, str):
                counted.broken = values
                break
            found, size = values
            counted.answered += 1
            counted.misses += found.count(None)
            counted.wrong += sum(got != expected for got, expected in zip(found, asked.pop(0), strict=True))
            at += size
    return counted


def take(stream: bytes, number: int, *, batched: bool) -> tuple[list[bytes | None], int] | str | None:
    """Return the values of one answer and its size; None if more must come; "garbage" if the answer is malformed."""
    at = 0
    if batched:
        head = line(stream, b"*")
        if not isinstance(head, tuple):
            return head
        if head[0] != number:
            return "garbage"
        at = head[1]
    values: list[bytes | None] = []
    for _ in range(number):
        head = line(stream[at:], b"$")
        if not isinstance(head, tuple):
            return head
        at += head[1]
        if head[0] < 0:
            values.append(None)
            continue
        if len(stream) < at + head[0] + 2:
            return None
        if stream[at + head[0] : at + head[0] + 2] != b"\r\n":
            return "garbage"
        values.append(stream[at : at + head[0]])
        at += head[0] + 2
    return values, at


def line(stream: bytes, kind: bytes) -> tuple[int, int] | str | None:
    """Return the number of a line and the line's size; None if more must come; "garbage" if the line is malformed."""
    found = NUMBER.match(stream)
    if found is not None and found[1] == kind:
        return int(found[2]), found.end()
    may_become = re.match(rb"(?:%b(?:-?[0-9]{0,9}|-?[0-9]{1,9}\r)?)?\Z" % re.escape(kind), stream)
    return None if may_become else "garbage"
