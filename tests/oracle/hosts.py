"""The hosts of HTTP requests that a server answers, by patterns."""

from __future__ import annotations

import re

ADDRESS = re.compile(rb"[0-9]*(?:\.[0-9]*){3}|\[[0-9a-fA-F:.]+\]")


def is_expected(host: bytes, names: bytes) -> bool:
    """Return True for an address, or one of the names, in lower case; all are right if there are none."""
    bare = re.sub(rb"\.?\Z", b"", re.sub(rb":[0-9]*\Z", b"", host), count=1)
    return not names or ADDRESS.fullmatch(bare) is not None or bare.lower() in names.split(b" ")
