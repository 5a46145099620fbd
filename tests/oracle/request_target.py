"""The database, key and options of a request target, byte by byte."""

from __future__ import annotations

HEXADECIMAL = "0123456789abcdefABCDEF"


def decoded(data):
    """Replace each escape once; None if a % begins no escape."""
    result = []
    at = 0
    while at < len(data):
        if data[at : at + 1] != b"%":
            result.append(data[at])
            at += 1
            continue
        digits = data[at + 1 : at + 3].decode("latin-1")
        if len(digits) != 2 or any(digit not in HEXADECIMAL for digit in digits):
            return None
        result.append(16 * int(digits[0], 16) + int(digits[1], 16))
        at += 3
    return bytes(result)


def read(raw):
    """Return `(database, key, options)` of a target that is a path, as bytes; None if an escape is malformed."""
    path, query = raw, b""
    for at in range(len(raw)):
        if raw[at : at + 1] == b"?":
            path, query = raw[:at], raw[at + 1 :]
            break
    slash = None
    for at in range(1, len(path)):
        if path[at : at + 1] == b"/":
            slash = at
            break
    database = decoded(path[1:slash])
    key = None if slash is None else decoded(path[slash + 1 :])
    options = {}
    for pair in query.split(b"&"):
        at = pair.find(b"=")
        name, value = (pair, b"") if at < 0 else (pair[:at], pair[at + 1 :])
        name, value = decoded(name.replace(b"+", b" ")), decoded(value.replace(b"+", b" "))
        if name is None or value is None:
            return None
        if pair and name not in options:
            options[name] = value
    if database is None or (slash is not None and key is None):
        return None
    return database, key, options
