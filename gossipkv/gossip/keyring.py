"""The keys that packets are sealed with, in a file that people edit and copy from node to node.

    # rack keys, 2026
    4mCAJJ8TcbgZoRq0B4yIRgRTBcSTVQvNPrBQQVCbs3U=
    9y0hH0JrJ5Ff0WZ0rjtOmfUh4v2G9Xn0D2Uq0m0dR1s=

One key of 32 bytes a line, in base64; empty lines and what follows `#` do not count.  The first key seals, every key
opens.  So keys change while a cluster runs, in three steps, each on every node before the next: *install* adds a key
behind the others, *use* moves it to the front, *remove* takes the old one out.  A node reads the file at its start and
at SIGHUP.

A key is named by its id, four bytes of its hash, which is also what packets carry.  No message of ours shows a key.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b
from typing import Final, NamedTuple

from gossipkv.errors import ConfigError

KEY_BYTES: Final = 32
KEY_ID_BYTES: Final = 4
MAX_KEYS: Final = 16  # A change of keys needs two; more only cost whoever lost count.
SESSION_BYTES: Final = 16


class Key(NamedTuple):
    """One key."""

    id: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"Key({self.id.hex()})"  # The secret must not get into a log.


def key(secret: bytes) -> Key:
    """A key with its id."""
    return Key(blake2b(secret, digest_size=KEY_ID_BYTES, person=b"gossipkv key").digest(), secret)


def parse(text: str, name: str) -> tuple[Key, ...]:
    """The keys of a file; `name` is what errors call it.

    Raises:
        ConfigError: a line is no key, stands twice, or there are none or too many.
    """
    keys: list[Key] = []
    for number, line in enumerate(text.splitlines(), 1):
        written = key_of_line(line)
        if not written:
            continue
        one = key(_secret(written, f"{name}: line {number}"))
        if any(one.id == other.id for other in keys):
            raise ConfigError(f"{name}: line {number}: key {one.id.hex()} stands there twice")
        keys.append(one)
    if not keys:
        raise ConfigError(f"{name}: there is no key in it; `gossipkv keys new` makes a file with one")
    if len(keys) > MAX_KEYS:
        raise ConfigError(f"{name}: {len(keys)} keys, at most {MAX_KEYS}; remove what no node uses any more")
    return tuple(keys)


def key_of_line(line: str) -> str:
    """What a line has before its comment."""
    return line.partition("#")[0].strip()


def _secret(written: str, where: str) -> bytes:
    try:
        secret = base64.b64decode(written, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{where}: expected a key of {KEY_BYTES} bytes in base64") from None
    if len(secret) != KEY_BYTES:
        raise ConfigError(f"{where}: expected a key of {KEY_BYTES} bytes in base64, got {len(secret)} bytes")
    return secret


def line_of(secret: bytes) -> str:
    """A key as it stands in the file."""
    return base64.b64encode(secret).decode()
