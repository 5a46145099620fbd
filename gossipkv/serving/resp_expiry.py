"""Commands of RESP about a record, most of them about its expiry, as steps: a record in, the answer out, or a write.

Times count by the clock of the node that is asked. A time that is over is written as the earliest expiry there is, so
the record is absent at once, as in Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.serving.resp_words import MIN_SIGNED, RefusedError, RespLine, signed
from gossipkv.settings.tables import MAX_EXPIRES_MS, MIN_EXPIRES_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.serving.resp_words import Said
    from gossipkv.wire.rpc import Value


class RecordWrite(NamedTuple):
    """A write of a record: a method of the wire, its parameters behind the key, its options, and the answer then."""

    method: bytes
    params: tuple[Value, ...]
    options: dict[str, Value]
    said: Said


Step = Callable[[bytes | None, int | None], "RecordWrite | Said"]  # From the value of a record and its expiry.

OK: Final = RespLine("OK")
SYNTAX: Final = "ERR syntax error"
NO_CONDITIONS: Final = f"{SYNTAX}: SET takes no NX, XX or GET here, since nothing is compared"

Unit = tuple[int, bool]  # Its milliseconds, and True if it counts from now.
EXPIRING: Final = {b"expire": (1000, True), b"pexpire": (1, True), b"expireat": (1000, False), b"pexpireat": (1, False)}
SETTING: Final = {b"setex": b"ex", b"psetex": b"px"}
OPTIONS: Final = {b"ex": (1000, True), b"px": (1, True), b"exat": (1000, False), b"pxat": (1, False)}
WRITERS: Final = (b"set", *SETTING, *EXPIRING, b"persist", b"getdel")


def planned(name: bytes, words: Sequence[bytes], now_ms: int) -> Step | RecordWrite:
    """Return the step of a command, or its write if no record is read first; `words`: those behind the key.

    Raises RefusedError.
    """
    if name in EXPIRING:
        return _expiring(name, words, now_ms)
    if name == b"getdel":
        return lambda value, _: None if value is None else RecordWrite(b"delete", (), {}, value)
    if name == b"persist":
        return lambda value, expires_at: 0 if value is None or expires_at is None else _put(value, {"ttl_ms": 0}, 1)
    if name in SETTING:
        lifetime, value = words
        words = (value, SETTING[name], lifetime)
    return _setting(name, words, now_ms)


def _put(value: bytes, expiry: dict[str, Value], said: Said) -> RecordWrite:
    return RecordWrite(b"put", (value,), expiry, said)


def _at(name: bytes, word: bytes, unit: Unit, now_ms: int, *, is_positive: bool) -> int:
    at, (unit_ms, is_from_now) = signed(word), unit
    expires_at = at * unit_ms + now_ms * is_from_now
    if (is_positive and at <= 0) or not MIN_SIGNED <= at * unit_ms <= MAX_EXPIRES_MS or expires_at > MAX_EXPIRES_MS:
        raise RefusedError(f"ERR invalid expire time in '{name.decode()}' command")
    return max(expires_at, MIN_EXPIRES_MS)


def _setting(name: bytes, words: Sequence[bytes], now_ms: int) -> Step | RecordWrite:
    value, *options = words
    keeps = False
    expiry: dict[str, Value] = {}
    while options:
        option = options.pop(0).lower()
        if option in {b"nx", b"xx", b"get"}:
            raise RefusedError(NO_CONDITIONS)
        if keeps or expiry or not (option == b"keepttl" or (option in OPTIONS and options)):
            raise RefusedError(SYNTAX)
        keeps = option == b"keepttl"
        if not keeps:
            expiry["expires_at"] = _at(name, options.pop(0), OPTIONS[option], now_ms, is_positive=True)
    if keeps:
        return lambda found, expires_at: _put(value, _kept(found, expires_at), OK)
    return _put(value, expiry, OK)


def _kept(found: bytes | None, expires_at: int | None) -> dict[str, Value]:
    """Return the expiry of a record that takes the place of another one; by the table's default if there was none."""
    if expires_at is not None:
        return {"expires_at": expires_at}
    return {} if found is None else {"ttl_ms": 0}


def _expiring(name: bytes, words: Sequence[bytes], now_ms: int) -> Step:
    lifetime, *options = words
    conditions = {option.lower() for option in options}
    for option in options:
        if option.lower() not in {b"nx", b"xx", b"gt", b"lt"}:
            raise RefusedError(f"ERR Unsupported option {option.decode(errors='replace')}")
    if b"nx" in conditions and len(conditions) > 1:
        raise RefusedError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if {b"gt", b"lt"} <= conditions:
        raise RefusedError("ERR GT and LT options at the same time are not compatible")
    at = _at(name, lifetime, EXPIRING[name], now_ms, is_positive=False)

    def step(value: bytes | None, expires_at: int | None) -> RecordWrite | Said:
        before = MAX_EXPIRES_MS + 1 if expires_at is None else expires_at
        forbids = {
            b"nx": expires_at is not None, b"xx": expires_at is None, b"gt": at <= before, b"lt": at >= before,
        }  # fmt: skip
        if value is None or any(forbids[condition] for condition in conditions):
            return 0
        return _put(value, {"expires_at": at}, 1)

    return step
