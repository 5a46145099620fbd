"""A node's end of a connection in plain Python: the answers and hand-offs that a stream of bytes must lead to.

Written from docs/users/wire.md, with the slow scanner and msgpack's own decoder. A `Conversation` is one pass over the
whole stream; nothing is held back, each scan ends in its first slice, and hand-offs are never answered. For limits,
time and replies see `tests.oracle.connections`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgpack

from tests.oracle import msgpack_scanner, scan

if TYPE_CHECKING:
    from collections.abc import Callable

# database -> (active version, version -> records)
Databases = dict[bytes, tuple[bytes | None, dict[bytes, dict[bytes, bytes]]]]


class Pairs(list):
    """A map, as its pairs in order."""


def decode(data: bytes) -> object:
    """Decode one value; `str` becomes bytes, a map its pairs."""
    return msgpack.unpackb(data, raw=True, strict_map_key=False, object_pairs_hook=Pairs)


def is_number(value: object) -> bool:
    return type(value) is int and value >= 0


def is_bytes(value: object) -> bool:
    return isinstance(value, bytes)


def is_name(value: object) -> bool:
    return isinstance(value, bytes) and value.isascii() and len(value) <= 255


def is_limit(value: object) -> bool:
    return is_number(value) and value != 0


def is_timeout(value: object) -> bool:
    return isinstance(value, int) and is_number(value) and value <= 2**40


def is_flag(value: object) -> bool:
    return isinstance(value, bool)


def is_identity(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == 16


NO_OPTIONS = Pairs()
READ_OPTIONS = {
    b"version": is_bytes,
    b"min_version": is_bytes,
    b"timeout_ms": is_timeout,
    b"local": is_flag,
    b"forwarded": is_flag,
    b"identity": is_identity,
}
GET_OPTIONS = {**READ_OPTIONS, b"explain": is_flag}
SCAN_OPTIONS = {
    b"version": is_bytes,
    b"min_version": is_name,
    b"timeout_ms": is_timeout,
    b"local": is_flag,
    b"start": is_bytes,
    b"end": is_bytes,
    b"prefix": is_bytes,
    b"cursor": is_bytes,
    b"reverse": is_flag,
    b"limit": is_limit,
}


@dataclass
class Conversation:
    """The results: answers as `(id, error code or None, result)`, hand-offs as `(id, method, parameters)`."""

    databases: Databases
    limits: dict[str, int]
    max_key: int = 65_535
    scan_limit: int = 1000
    name: str = "here"
    answers: list[tuple[int, str | None, object]] = field(default_factory=list)
    hand_offs: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    in_flight: set[int] = field(default_factory=set)
    notifications: int = 0
    spoken: bool = False
    protocol: str | None = None  # The other protocol that the peer spoke.
    ended: str | None = None

    def answer(self, msgid: int, result: object) -> None:
        self.answers.append((msgid, None, result))

    def error(self, msgid: int, code: str, why: str) -> None:
        """Record a refusal; `why` is not compared here."""
        del why
        self.answers.append((msgid, code, None))

    def turn_away(self, protocol: str) -> None:
        self.protocol = protocol

    def hand_off(self, msgid: int, method: bytes, params: bytes) -> None:
        self.in_flight.add(msgid)
        self.hand_offs.append((msgid, method, params))

    def hear(self, stream: bytes) -> None:
        at = 0
        while self.ended is None and at < len(stream):
            found = msgpack_scanner.scan(stream[at:], **self.limits)
            if found is None:
                return
            if isinstance(found, tuple):
                self.refuse(stream[at : at + found[1]], found[0])
                return
            self.message(stream[at : at + found])
            at += found

    def parts(self, data: bytes) -> list[bytes]:
        """Return the whole elements of an array; nothing for any other value."""
        widths = {0xDC: 2, 0xDD: 4}
        if not data or not (0x90 <= data[0] <= 0x9F or data[0] in widths):
            return []
        width = widths.get(data[0], 0)
        count = int.from_bytes(data[1 : 1 + width], "big") if width else data[0] & 0x0F
        found, at = [], 1 + width
        for _ in range(count):
            size = msgpack_scanner.scan(data[at:], **self.limits)
            if not isinstance(size, int):
                break
            found.append(data[at : at + size])
            at += size
        return found

    def refuse(self, shown: bytes, reason: str) -> None:
        """Answer a frame that the scanner refused, if the frame has shown its id."""
        self.ended = "bad_frame"
        values = [decode(part) for part in self.parts(shown)[:2]]
        if len(values) == 2 and self.is_request_id(values):
            over = reason == "size"
            self.error(values[1], "TOO_LARGE" if over else "BAD_REQUEST", "frame too large" if over else "frame")

    @staticmethod
    def is_request_id(values: list[object]) -> bool:
        return is_number(values[0]) and values[0] == 0 and is_number(values[1]) and values[1] < 2**32

    def message(self, frame: bytes) -> None:
        parts = self.parts(frame)
        values = [decode(part) for part in parts]
        first, self.spoken = not self.spoken, True
        if values and is_number(values[0]) and values[0] in {1, 2}:
            self.ended = "unasked_response" if values[0] == 1 else None
            self.notifications += values[0] == 2
        elif len(values) < 2 or not self.is_request_id(values):
            self.ended = "bad_message"
            if first and len(frame) == 1 and (frame == b"*" or frame.isupper()):
                self.turn_away("RESP" if frame == b"*" else "HTTP")
        elif len(values) != 4 or not isinstance(values[2], bytes) or type(values[3]) is not list:
            self.error(values[1], "BAD_REQUEST", "no request")
        else:
            self.request(values[1], values[2], parts[3], values[3])

    def request(self, msgid: int, method: bytes, raw: bytes, params: list[object]) -> None:
        result: object = None
        if msgid in self.in_flight:
            self.error(msgid, "BAD_REQUEST", "id in flight")
            return
        if method == b"ping" and raw == b"\x90":
            result = b"pong"
        elif method in {b"get", b"get_many"} and len(params) in {2, 3}:
            result = self.read(method, *params)
        elif method == b"scan" and len(params) in {1, 2}:
            result = self.scan(*params)
        if result is None:
            self.hand_off(msgid, method, raw)
        else:
            self.answer(msgid, result)

    def read(self, method: bytes, database: object, asked: object, pairs: object = NO_OPTIONS) -> list[object] | None:
        """Return the result of a plain read; None if the read is not plain."""
        many = method == b"get_many"
        keys = asked if many else [asked]
        if type(keys) is not list or any(not isinstance(key, bytes) or len(key) > self.max_key for key in keys):
            return None
        if not isinstance(database, bytes) or database not in self.databases or not isinstance(pairs, Pairs):
            return None
        given = self.options(pairs, READ_OPTIONS if many else GET_OPTIONS)
        if given is None or given.get(b"forwarded") or b"identity" in given:
            return None  # No version here has an identity.
        version = self.choose(*self.databases[database], given)
        if version is None:
            return None
        records = self.databases[database][1][version]
        values = [records.get(key) for key in keys]
        explained = [{b"node": self.name.encode()}] if given.get(b"explain") else []
        return [values if many else values[0], version, *explained]

    @staticmethod
    def options(pairs: Pairs, known: dict[bytes, Callable[[object], bool]]) -> dict[bytes, object] | None:
        """Return the options that are set; None if an option is unknown or malformed."""
        for name, value in pairs:
            if not isinstance(name, bytes) or name not in known:
                return None
            if value is not None and not known[name](value):
                return None
        return {name: value for name, value in dict(pairs).items() if value is not None}

    def scan(self, database: object, pairs: object = NO_OPTIONS) -> list[object] | None:
        """Return the result of a plain scan; None if the scan is not plain."""
        if not isinstance(database, bytes) or database not in self.databases or not isinstance(pairs, Pairs):
            return None
        for name, value in pairs:
            if not isinstance(name, bytes) or name not in SCAN_OPTIONS:
                return None
            if value is not None and not SCAN_OPTIONS[name](value):
                return None
        given = {name: value for name, value in dict(pairs).items() if value is not None}
        chosen = given
        if b"cursor" in given:
            cursor = scan.read_cursor(given[b"cursor"])
            if cursor is None or given.get(b"version", cursor[0].encode()) != cursor[0].encode():
                return None
            chosen = {b"version": cursor[0].encode()}
        version = self.choose(*self.databases[database], chosen)
        if version is None:
            return None
        records = sorted(self.databases[database][1][version].items())
        options = {name.decode(): value for name, value in given.items()}
        limits = {"scan_limit": self.scan_limit, "max_frame": self.limits["max_size"]}
        return [*scan.result(records, version.decode(), options, **limits)[:2], version]

    @staticmethod
    def choose(
        active: bytes | None, versions: dict[bytes, dict[bytes, bytes]], given: dict[bytes, bytes]
    ) -> bytes | None:
        least = given.get(b"min_version")
        if b"version" in given:
            candidates = [given[b"version"]] if given[b"version"] in versions else []
        elif least is None:
            candidates = [] if active is None else [active]
        else:
            candidates = ([] if active is None else [active]) + sorted(versions)
        return next((name for name in candidates if least is None or name >= least), None)
