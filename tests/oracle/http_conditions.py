"""RFC 9110's conditions and ranges, by sets of positions and the standard library's reading of times."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

TIME = re.compile(
    r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4} \d\d:\d\d:\d\d GMT"
)


def seconds(text):
    """Return the seconds since the epoch of a time in the preferred form; None for anything else."""
    if text is None or TIME.fullmatch(text) is None:
        return None
    try:
        return int(parsedate_to_datetime(text).timestamp())
    except ValueError:
        return None


def positions(header, size, most):
    """Return the positions of `Range`, a list for each part within the value; None if the header is ignored."""
    unit, equals, listed = header.strip(" \t").partition("=")
    if not equals or unit.strip(" \t").lower() != "bytes":
        return None
    found, count = [], 0
    for item in (each.strip(" \t") for each in listed.split(",")):
        if item == "":
            continue
        count += 1
        first, dash, last = item.partition("-")
        if not dash or not re.fullmatch("[0-9]*", first) or not re.fullmatch("[0-9]*", last) or item == "-":
            return None
        if first and last and int(last) < int(first):
            return None
        if first:
            inside = [at for at in range(size) if int(first) <= at and (not last or at <= int(last))]
        else:
            if size == 0 and int(last):
                return None
            inside = [at for at in range(size) if at >= size - int(last)]
        if inside:
            found.append(inside)
    if not 0 < count <= most or sum(map(len, found)) > size:
        return None
    return found


def status(method, headers, found, most):
    """Return the status, and for 206 the positions of each part; tags are given as lists, or `*`.

    `found` is tag, time and size.
    """
    tag, time_s, size = found
    if is_other(headers, tag, time_s):
        return 412, None
    if is_known(headers, tag, time_s):
        return 304, None
    validator = headers.get("if-range")
    unchanged = validator in {None, tag} or (time_s is not None and seconds(validator) == time_s)
    if method != "GET" or "range" not in headers or not unchanged:
        return 200, None
    parts = positions(headers["range"], size, most)
    return (200, None) if parts is None else (206, parts) if parts else (416, None)


def is_other(headers, tag, time_s):
    if "if-match" in headers:
        return headers["if-match"] != "*" and tag not in headers["if-match"]
    since = seconds(headers.get("if-unmodified-since"))
    return since is not None and time_s is not None and time_s > since


def is_known(headers, tag, time_s):
    if "if-none-match" in headers:
        listed = headers["if-none-match"]
        return listed == "*" or tag in [each.removeprefix("W/") for each in listed]
    since = seconds(headers.get("if-modified-since"))
    return since is not None and time_s is not None and time_s <= since
