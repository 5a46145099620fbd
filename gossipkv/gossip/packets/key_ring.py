"""The keys that seal packets, in a file that people edit and copy from node to node.

    # rack keys, 2026
    4mCAJJ8TcbgZoRq0B4yIRgRTBcSTVQvNPrBQQVCbs3U=
    9y0hH0JrJ5Ff0WZ0rjtOmfUh4v2G9Xn0D2Uq0m0dR1s=

A line is one key of 32 bytes in base64; empty lines and comments after `#` do not count. The first key seals, every key
opens. Keys change in a running cluster by three steps, each on every node before the next: *install* appends a key,
*use* moves it to the front, *remove* deletes the old one. A node reads the file at its start and at SIGHUP. A key is
named by its id, four bytes of its hash, which packets carry. No message of ours shows a key.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEY_BYTES: Final = 32
KEY_ID_BYTES: Final = 4
MAX_KEYS: Final = 16  # A change of keys needs two; more are a mistake.
SESSION_BYTES: Final = 16


class Key(NamedTuple):
    """A secret and its id."""

    id: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"Key({self.id.hex()})"  # The secret must not get into a log.


def key(secret: bytes) -> Key:
    """Return a key with its id."""
    return Key(blake2b(secret, digest_size=KEY_ID_BYTES, person=b"gossipkv key").digest(), secret)


def parse(text: str, name: str) -> tuple[Key, ...]:
    """Return the keys of a file; errors call the file `name`.

    Raises:
        ConfigError: a line is no key, a key occurs twice, or there are none or too many.
    """
    keys: list[Key] = []
    for number, line in enumerate(text.splitlines(), 1):
        written = key_of_line(line)
        if not written:
            continue
        ring_key = key(_secret(written, f"{name}: line {number}"))
        if any(ring_key.id == other.id for other in keys):
            raise ConfigError(f"{name}: line {number}: key {ring_key.id.hex()} is in the file twice")
        keys.append(ring_key)
    if not keys:
        raise ConfigError(f"{name}: the file has no key; make a key with `gossipkv keys new`")
    if len(keys) > MAX_KEYS:
        raise ConfigError(f"{name}: the file has {len(keys)} keys, at most {MAX_KEYS} may be; remove unused keys")
    return tuple(keys)


def key_of_line(line: str) -> str:
    """Return the part of a line before its comment."""
    return line.partition("#")[0].strip()


def _secret(written: str, where: str) -> bytes:
    try:
        secret = base64.b64decode(written, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{where}: expected a key of {KEY_BYTES} bytes in base64") from None
    if len(secret) != KEY_BYTES:
        raise ConfigError(f"{where}: expected a key of {KEY_BYTES} bytes in base64, got {len(secret)} bytes")
    return secret


def line_of(ring_key: Key) -> str:
    """Return the line of a key in the file, with its id as a comment."""
    return f"{base64.b64encode(ring_key.secret).decode()}  # {ring_key.id.hex()}\n"


# Changes of the text keep other lines as they are, since people write comments.


def installed(text: str, added: Sequence[Key], name: str) -> str:
    """Return the text with more keys at the end; keys that it has already are skipped."""
    present = {ring_key.id for ring_key in parse(text, name)}
    changed = text if text.endswith("\n") else f"{text}\n"
    changed += "".join(line_of(ring_key) for ring_key in added if ring_key.id not in present)
    parse(changed, name)  # Checks that there are not too many keys.
    return changed


def used(text: str, chosen: bytes, name: str) -> str:
    """Return the text with this key before the others."""
    lines = text.splitlines(keepends=True)
    places = _places(lines, name)
    line = lines.pop(_place(places, chosen, name))
    lines.insert(min(places.values()), line if line.endswith("\n") else f"{line}\n")
    return "".join(lines)


def removed(text: str, chosen: bytes, name: str) -> str:
    """Return the text without this key, which must not be the first."""
    lines = text.splitlines(keepends=True)
    places = _places(lines, name)
    place = _place(places, chosen, name)
    if place == min(places.values()):
        raise ConfigError(f"{name}: key {chosen.hex()} seals gossip; first use another key on every node")
    del lines[place]
    return "".join(lines)


def _places(lines: Sequence[str], name: str) -> dict[bytes, int]:
    having = [number for number, line in enumerate(lines) if key_of_line(line)]
    return {ring_key.id: number for ring_key, number in zip(parse("".join(lines), name), having, strict=True)}


def _place(places: Mapping[bytes, int], chosen: bytes, name: str) -> int:
    if chosen not in places:
        ids = ", ".join(id_.hex() for id_ in places)
        raise ConfigError(f"{name}: the file has no key {chosen.hex()}; its keys are {ids}")
    return places[chosen]
