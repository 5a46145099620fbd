"""What the reads of a dataset send, and what their answers must look like; shared by every shell.

An answer is bytes from a peer: each function here either returns it with its type, or raises `ProtocolError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.errors import BadRequest, ProtocolError

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value

Key = bytes | str
Record = tuple[bytes, bytes]

SHOWN_CHARACTERS: Final = 80  # Of an answer that is wrong: enough to recognise it by.


def key_bytes(key: Key) -> bytes:
    """The key as it travels; text means its UTF-8 bytes.

    Raises:
        BadRequest: text that has no UTF-8 form.
        TypeError: neither bytes nor text.
    """
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError as error:
            raise BadRequest(f"the key {key!r} has no UTF-8 form: {error.reason}") from None
    raise TypeError(f"a key is bytes or str, not {type(key).__name__}")


def parameters(
    database: str, subject: list[Value], version: str | None, min_version: str | None, **others: Value
) -> list[Value]:
    """Database, what is asked for, and a map of the options that are given at all."""
    options: dict[str, Value] = {name: value for name, value in others.items() if value is not None}
    if version is not None:
        options["version"] = version
    if min_version is not None:
        options["min_version"] = min_version
    return [database, *subject, options] if options else [database, *subject]


def value_of(result: Value) -> tuple[bytes | None, str]:
    """The answer to `get`: a value or None, and the version it is from."""
    match result:
        case [bytes() | None as value, str(version)]:
            return value, version
    raise _unexpected("get", "[value or nil, version]", result)


def values_of(result: Value, count: int) -> tuple[list[bytes | None], str]:
    """The answer to `get_many` of `count` keys: as many values, all from one version."""
    match result:
        case [[*values], str(version)] if len(values) == count:
            found = [value for value in values if value is None or isinstance(value, bytes)]
            if len(found) == count:
                return found, version
    raise _unexpected("get_many", f"[[{count} values or nil], version]", result)


def page_of(result: Value) -> tuple[list[Record], Value, str]:
    """The answer to `scan`: records in order, the cursor of the next page or None, and the version."""
    match result:
        case [[*pairs], cursor, str(version)]:
            records = []
            for pair in pairs:
                match pair:
                    case [bytes(key), bytes(value)]:
                        records.append((key, value))
            if len(records) == len(pairs):
                return records, cursor, version
    raise _unexpected("scan", "[[[key, value], ...], cursor or nil, version]", result)


def map_of(method: str, result: Value) -> dict[str, Value]:
    """An answer that is a map."""
    if isinstance(result, dict):
        return result
    raise _unexpected(method, "a map", result)


def maps_of(method: str, result: Value) -> list[dict[str, Value]]:
    """An answer that is a list of maps."""
    if isinstance(result, list):
        maps = [item for item in result if isinstance(item, dict)]
        if len(maps) == len(result):
            return maps
    raise _unexpected(method, "a list of maps", result)


def _unexpected(method: str, expected: str, got: Value) -> ProtocolError:
    shown = repr(got)
    shown = shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[: SHOWN_CHARACTERS - 3]}..."
    return ProtocolError(f"{method} was answered with {shown} where {expected} was expected", {"method": method})
