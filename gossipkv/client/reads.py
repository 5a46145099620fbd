"""Contents of read requests, and the shapes of their answers; shared by every shell.

Answers are bytes of a peer: each function here returns an answer with its type, or raises `ProtocolError`.
"""

from __future__ import annotations

from math import inf
from operator import index
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeVar

import msgpack

from gossipkv.errors import WRITES_ARE, BadRequest, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gossipkv.wire.rpc import Value

Buffer = bytes | bytearray | memoryview
Key = Buffer | str | int
Record = tuple[bytes, bytes]
OneKey = TypeVar("OneKey", bound=Key)
Stamp = str | bytes  # The version of a dataset, or the token of a table, that an answer comes from.
_Found = TypeVar("_Found")
_Whole = TypeVar("_Whole")
_Default = TypeVar("_Default")
_Several_co = TypeVar("_Several_co", covariant=True)

TIMEOUT_MS: Final = 1000  # The interface's default: far above any healthy answer, and well below a person's patience.
STAGE_TIMEOUT_MS: Final = 50  # Then another node is asked as well: few healthy answers take as long.

# Methods that may be repeated without harm; all others are sent once.
REPEATABLE: Final = frozenset({
    "ping", "info", "databases", "get", "get_many", "scan", "status", "refresh", "members", "children", "entries",
    "partition_map", "partitions", "metadata_status", "verify_table", "verdict", "report",
})  # fmt: skip

# The ports of a node that a client may be given by mistake: the first bytes of their answers, and the settings.
OTHER_PORTS: Final = ((b"HTTP/", "HTTP", "http_listen"), (b"-ERR ", "RESP, Redis's protocol", "resp_listen"))

SHOWN_CHARACTERS: Final = 80  # Characters of a wrong answer in an error: enough to recognise it.


class Several(Protocol[_Several_co]):
    """A collection of keys; text is none for type checkers, since text can only contain text."""

    def __iter__(self) -> Iterator[_Several_co]: ...
    def __contains__(self, item: object, /) -> bool: ...


if TYPE_CHECKING:  # In place of `Iterable[Key]`, which a single text would be.
    Keys = Iterable[Buffer] | Iterator[Key] | Several[Key]


class Container:
    """A dataset or a table as a container of keys."""

    __slots__ = ()
    __iter__ = None  # Else Python would ask for the keys 0, 1 and so on.
    if TYPE_CHECKING:

        def has(self, key: Key) -> object: ...

    def __contains__(self, key: Key) -> bool:
        found = self.has(key)
        if isinstance(found, bool):
            return found
        found.close()  # type: ignore[attr-defined]  # It is a coroutine.
        raise TypeError(f"`in` cannot be awaited; write: await {type(self).__name__.lower()}.has(key)")


class ReadOnly(Container):
    """A dataset; its missing write methods raise an error that names the alternatives."""

    __slots__ = ()
    if not TYPE_CHECKING:  # Type checkers see no such methods.

        def __getattr__(self, name: str) -> NoReturn:
            words = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in {"put", "put_many", "set", "delete"}:
                words = f"a dataset has no method {name}: {WRITES_ARE}"
            raise AttributeError(words, name=name, obj=self)


def key_bytes(key: Key) -> bytes:
    """Return the key as it is sent; text means its UTF-8 bytes, and an integer its digits, as in integer columns.

    Raises:
        BadRequest: text that has no UTF-8 form.
        TypeError: neither bytes nor text nor an integer.
    """
    if isinstance(key, Buffer):
        return bytes(key)  # A copy of mutable buffers; `bytes` are not copied.
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError as error:
            raise BadRequest(f"the key {key!r} cannot be encoded as UTF-8: {error.reason}") from None
    if hasattr(key, "__index__") and not isinstance(key, bool):  # NumPy's integers are none of Python's.
        return b"%d" % index(key)
    raise TypeError(f"a key must be bytes, str or int, not {type(key).__name__}")


def span_options(start: Key | None, end: Key | None, prefix: Key | None, *, reverse: bool) -> dict[str, Value]:
    """Return the options of a scan for the records with `start <= key < end` and `prefix`. Raises as `key_bytes`."""
    bounds = ("start", start), ("end", end), ("prefix", prefix)
    options: dict[str, Value] = {name: key_bytes(key) for name, key in bounds if key is not None}
    return options | {"reverse": True} if reverse else options


def name_bytes(name: str) -> bytes:
    """Return the name of a database as it is sent.

    Raises:
        BadRequest: text that has no UTF-8 form.
        TypeError: no text.
    """
    check_text("the name of a database", name)
    try:
        return msgpack.packb(name)
    except UnicodeEncodeError as error:
        raise BadRequest(f"the name {name!r} cannot be encoded as UTF-8: {error.reason}") from None


def given(options: dict[str, Value]) -> dict[str, Value]:
    """Return the options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def packed(options: dict[str, Value]) -> bytes | None:
    """Return options as they are sent; None if there are none.

    Raises:
        BadRequest: MessagePack cannot encode them.
    """
    try:
        return msgpack.packb(options) if options else None
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRequest(f"the options {options} cannot be encoded: {error}") from None


def several(items: Iterable[_Found], name: str = "keys") -> Iterable[_Found]:
    """Return `items`; refuse a single one, which as a text would be iterated by character."""
    if isinstance(items, Key) or not hasattr(items, "__iter__"):
        raise TypeError(f"{name} must be an iterable, such as a list, not {items!r:.80}")
    return items


def check_text(name: str, value: object) -> None:
    """Raise TypeError if the value is no text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")


def or_default(finish: Callable[[_Whole], bytes | None], default: _Default) -> Callable[[_Whole], bytes | _Default]:
    """Return `finish` with the default in place of None."""
    return lambda answer: default if (value := finish(answer)) is None else value


def there(value: bytes | None, key: Key) -> bytes:
    """Return the value.  Raises KeyError if there is none."""
    if value is None:
        raise KeyError(key)
    return value


def other_protocol(begin: bytes) -> ProtocolError | None:
    """Return the error for a port of another protocol, by the first bytes that come from it."""
    for first, protocol, setting in OTHER_PORTS:
        if begin.startswith(first):
            words = f"this port speaks {protocol}; connect to the node's port for clients (`listen`, by default 7070)"
            return ProtocolError(f"{words}, not to `{setting}`", {"protocol": protocol})
    return None


def into_columns(into: str | None, *, as_text: bool) -> bool:
    """Return True if answers are to become columns.

    Raises:
        BadRequest: `into` is neither None nor `"arrow"`, or `as_text` is of no use without it.
    """
    if into is not None and into != "arrow":
        raise BadRequest(
            f"into must be 'arrow' or None, not {into!r}; other libraries can import the result of into='arrow'"
        )
    if as_text and into is None:
        raise BadRequest("as_text needs into='arrow'")
    return into is not None


def number(name: str, value: int, *, least: int = 1) -> int:
    """Return a number.

    Raises:
        TypeError: it is no number.
        ValueError: it is less than `least`, or not finite.
    """
    try:
        is_valid = least <= value < inf
    except TypeError:
        raise TypeError(f"{name} must be a number, not {value!r}") from None
    if not is_valid:
        raise ValueError(f"{name} must be {'positive' if least else 'at least 0'}, not {value}")
    return value


def stage_s(stage_timeout_ms: int | None) -> float | None:
    """Return the seconds after which a silent read is asked elsewhere as well; None: never.  Raises as `number`."""
    return None if stage_timeout_ms is None else number("stage_timeout_ms", stage_timeout_ms) / 1000


def value_of(result: Value) -> tuple[bytes | None, Stamp]:
    """Check the answer to `get`: a value or None, and its stamp."""
    match result:
        case [bytes() | None as value, str() | bytes() as stamp]:
            return value, stamp
    raise unexpected("get", "[value or nil, version or token]", result)


def values_of(result: Value, count: int) -> tuple[list[bytes | None], Stamp]:
    """Check the answer to `get_many` of `count` keys: as many values, and their stamp."""
    match result:
        case [[*values], str() | bytes() as stamp] if len(values) == count:
            found = [value for value in values if value is None or isinstance(value, bytes)]
            if len(found) == count:
                return found, stamp
    raise unexpected("get_many", f"[[{count} values or nil], version or token]", result)


def page_of(result: Value) -> tuple[list[Record], Value, Stamp]:
    """Check the answer to `scan`: records in order, the cursor of the next page or None, and the stamp."""
    match result:
        case [[*pairs], cursor, str() | bytes() as stamp]:
            records = []
            for pair in pairs:
                match pair:
                    case [bytes(key), bytes(value)]:
                        records.append((key, value))
            if len(records) == len(pairs):
                return records, cursor, stamp
    raise unexpected("scan", "[[[key, value], ...], cursor or nil, version or token]", result)


def versioned(answer: tuple[_Found, Stamp]) -> tuple[_Found, str]:
    """Return an answer of a dataset.

    Raises:
        BadRequest: it is a table's.
    """
    found, stamp = answer
    if isinstance(stamp, bytes):
        raise BadRequest("the database is a table, not a dataset; read it with `client.table`")
    return found, stamp


def of_dataset(answer: tuple[_Found, Stamp]) -> _Found:
    """Return an answer of a dataset without its version.  Raises as `versioned`."""
    return versioned(answer)[0]


def tokened(answer: tuple[_Found, Stamp]) -> tuple[_Found, bytes]:
    """Return an answer of a table.

    Raises:
        BadRequest: it is a dataset's.
    """
    found, stamp = answer
    if isinstance(stamp, str):
        raise BadRequest("the database is a dataset, not a table; read it with `client.dataset`")
    return found, stamp


def map_of(method: str, result: Value) -> dict[str, Value]:
    """Check an answer that is a map."""
    if isinstance(result, dict):
        return result
    raise unexpected(method, "a map", result)


def list_of(method: str, result: Value, kind: type[_Found], kinds: str) -> list[_Found]:
    """Check an answer that is a list of items of one kind."""
    if isinstance(result, list):
        items = [item for item in result if isinstance(item, kind)]
        if len(items) == len(result):
            return items
    raise unexpected(method, f"a list of {kinds}", result)


def maps_of(method: str, result: Value) -> list[dict[str, Value]]:
    """Check an answer that is a list of maps."""
    return list_of(method, result, dict, "maps")


def unexpected(method: str, expected: str, got: Value) -> ProtocolError:
    """Return the error for an answer of an unexpected shape."""
    shown = repr(got)
    shown = shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[: SHOWN_CHARACTERS - 3]}..."
    return ProtocolError(f"the node answered {method} with {shown}; expected {expected}", {"method": method})
