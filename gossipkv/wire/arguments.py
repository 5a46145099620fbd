"""Checks of a client's request: parameters are taken in order, each with one clear error.

Only requests that the serving loop handed off are checked here. Text stays bytes until it is needed as text
(`gossipkv.wire.rpc`), so `str` and `bin` are both accepted for names and for keys.

Usage::

    arguments = Arguments(b"get", params)
    database = arguments.text("database")
    key = arguments.key("key", limit)
    options = arguments.options("version", "min_version", "timeout_ms")
"""

from __future__ import annotations

import difflib
from functools import cache
from typing import TYPE_CHECKING, Final, final

import msgpack

from gossipkv.errors import BadRequest
from gossipkv.wire.opaque import OpaqueLimits, unpack
from gossipkv.wire.rpc import Raw, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# The longest useful text, since names of databases and versions are file names. Longer text is refused before it is
# looked up, compared, or returned in an error.
MAX_NAME_BYTES = 255

# The longest path in the tree.
MAX_PATH_BYTES = 1024

# The longest file path that Linux accepts.
MAX_FILE_PATH_BYTES = 4095

# The longest timeout of a request, 35 years; added to any clock it fits 63 bits.
MAX_TIMEOUT_MS = 1 << 40

# Records or keys in one message between nodes: the receiver handles these in about 10 ms.
MAX_MESSAGE_ROWS: Final = 2048
MAX_MESSAGE_BYTES: Final = 256 << 10  # The smallest log segment has room for four such messages.
ROW_ELEMENTS: Final = 8  # The most elements of `packed_rows` for each of the most rows.
ROW_BYTES: Final = 32  # The most that a row has beside its key and value: the heads, an expiry, a time.


def fits_message(rows: int, size_bytes: int) -> bool:
    """Return True if one message between nodes takes that many rows; `size_bytes` has ROW_BYTES for each.

    Senders cut by this function, and receivers refuse by it (`Arguments.message_rows`). One row of any size fits.
    """
    return rows <= 1 or (rows <= MAX_MESSAGE_ROWS and size_bytes <= MAX_MESSAGE_BYTES)


def _text(value: Raw, where: str, limit: int = MAX_NAME_BYTES) -> str:
    if not isinstance(value, bytes):
        raise BadRequest(f"{where} must be a string, not {kind_of(value)}")
    if len(value) > limit:
        noun = "name" if limit == MAX_NAME_BYTES else "path"
        raise BadRequest(
            f"{where} has {len(value)} bytes, more than the {limit} that a {noun} may have",
            {"limit": limit, "size": len(value)},
        )
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"{where} is not UTF-8: {error.reason} at byte {error.start}") from None


def _parameters(count: int) -> str:
    return f"{count} parameter" if count == 1 else f"{count} parameters"


def _check_length(key: bytes, where: str, limit: int) -> bytes:
    if len(key) > limit:
        raise BadRequest(
            f"{where} has {len(key)} bytes, more than the {limit} that a key may have",
            {"limit": limit, "size": len(key)},
        )
    return key


@cache
def _by_bytes(names: tuple[str, ...]) -> Mapping[Raw, str]:
    """Return the option names by their bytes on the wire; cached, since a method always knows the same few."""
    return {name.encode(): name for name in names}


def name_of(method: bytes) -> str:
    """Return a method's name for people."""
    return method[:100].decode(errors="replace")


@final
class Arguments:
    """The parameters of one request.

    Raises:
        BadRequest: from every method, if the parameter is not as expected.
    """

    __slots__ = ("_at", "_values", "called")

    def __init__(self, method: bytes, params: bytes) -> None:
        """Decode the parameters of a request, cut out of its frame."""
        self.called = method  # The method's name, as the client sent it.
        try:
            values: Raw = msgpack.unpackb(params, raw=True, strict_map_key=True)
        except ValueError as error:
            raise BadRequest(f"the request cannot be decoded: {error}") from error
        if not isinstance(values, list):
            raise BadRequest(f"parameters must be an array, not {kind_of(values)}")
        self._values = values
        self._at = 0

    @property
    def method(self) -> str:
        """The method's name for people; clients may send any name."""
        return name_of(self.called)

    @property
    def values(self) -> Sequence[Raw]:
        return self._values

    @property
    def is_over(self) -> bool:
        return self._at == len(self._values)

    def rewind(self) -> None:
        """Start again, after a look at the parameters to find the method's owner."""
        self._at = 0

    def text(self, name: str) -> str:
        if self._at < len(self._values):  # Most requests are right; `_text` words the errors of the others.
            value = self._values[self._at]
            if isinstance(value, bytes) and len(value) <= MAX_NAME_BYTES and value.isascii():
                self._at += 1
                return value.decode()
        return _text(self._next(name), f"{self.method}: the {name}")

    def text_or_nil(self, name: str) -> str | None:
        """Take a name, nil, or nothing at all."""
        if self._at == len(self._values):
            return None
        value = self._next(name)
        return None if value is None else _text(value, f"{self.method}: the {name}")

    def path(self, name: str) -> str:
        """Take a path in the tree."""
        return _text(self._next(name), f"{self.method}: the {name}", MAX_PATH_BYTES)

    def directory(self, name: str) -> str:
        """Take a path on the node's machine."""
        found = _text(self._next(name), f"{self.method}: the {name}", MAX_FILE_PATH_BYTES)
        if "\0" in found:
            raise BadRequest(f"{self.method}: the {name} must not have a NUL byte")
        return found

    def blob(self, name: str) -> bytes:
        value = self._values[self._at] if self._at < len(self._values) else self._next(name)
        if not isinstance(value, bytes):
            raise BadRequest(f"{self.method}: the {name} must be bytes, not {kind_of(value)}")
        self._at += 1
        return value

    def blob_or_nil(self, name: str, *, optional: bool = False) -> bytes | None:
        if optional and self.is_over:
            return None
        value = self._next(name)
        if value is not None and not isinstance(value, bytes):
            raise BadRequest(f"{self.method}: the {name} must be bytes or nil, not {kind_of(value)}")
        return value

    def whole(self, name: str, most: int) -> int:
        value = self._next(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise BadRequest(f"{self.method}: the {name} must be a number from 0 to {most}")
        return value

    def packed_rows(self, name: str, most: int) -> list[Raw]:
        """Take a packed array of at most `most` items; in bytes of its own, it may exceed a request's element limit."""
        try:
            packed = self.blob(name)
            values = unpack(packed, OpaqueLimits(len(packed), most * (1 + ROW_ELEMENTS)), raw=True)
        except ValueError as error:
            raise BadRequest(f"{self.method}: the {name} cannot be decoded: {error}") from error
        if not isinstance(values, list):
            raise BadRequest(f"{self.method}: the {name} must be a packed array")
        return self._checked_count(values, name, most)

    def message_rows(self, name: str, width: int) -> list[Raw]:
        """Take the packed rows of a message between nodes, each of `width` elements, one behind the other."""
        size_bytes = len(self.blob(name))
        self._at -= 1
        values = self.packed_rows(name, width * MAX_MESSAGE_ROWS)
        if not values or len(values) % width:
            raise BadRequest(f"{self.method}: the {name} must be rows of {width} elements, not {len(values)} elements")
        if not fits_message(len(values) // width, size_bytes):
            words = f"the {name} have {size_bytes} bytes, more than the {MAX_MESSAGE_BYTES} that a message may have"
            raise BadRequest(f"{self.method}: {words}", {"limit": MAX_MESSAGE_BYTES, "size": size_bytes})
        return values

    def rows(self, name: str, most: int) -> list[Raw]:
        values = self._next(name)
        if not isinstance(values, list):
            raise BadRequest(f"{self.method}: the {name} must be an array, not {kind_of(values)}")
        return self._checked_count(values, name, most)

    def _checked_count(self, values: list[Raw], name: str, most: int) -> list[Raw]:
        if len(values) > most:
            words = f"the {name} are {len(values)}, more than the {most} that a request may have"
            raise BadRequest(f"{self.method}: {words}", {"limit": most, "size": len(values)})
        return values

    def key(self, name: str, limit: int) -> bytes:
        value = self._values[self._at] if self._at < len(self._values) else self._next(name)
        self._at += 1
        if isinstance(value, bytes) and len(value) <= limit:
            return value
        return self._key(value, f"the {name}", limit)

    def keys(self, name: str, limit: int, most: int | None = None) -> list[bytes]:
        """Take keys of at most `limit` bytes each; at most `most` keys, if that is given."""
        values = self._next(name)
        if not isinstance(values, list):
            raise BadRequest(f"{self.method}: the {name} must be an array, not {kind_of(values)}")
        if most is not None:
            self._checked_count(values, name, most)
        if all(isinstance(value, bytes) and len(value) <= limit for value in values):
            return [value for value in values if isinstance(value, bytes)]
        return [self._key(value, f"{name}[{index}]", limit) for index, value in enumerate(values)]

    def texts(self, name: str) -> list[str]:
        values = self._next(name)
        if not isinstance(values, list):
            raise BadRequest(f"{self.method}: the {name} must be an array, not {kind_of(values)}")
        return [_text(value, f"{self.method}: {name}[{index}]") for index, value in enumerate(values)]

    def options(self, *allowed: str) -> OptionArguments:
        """Take the last parameter: a map of options, or nothing; refuses names that are not `allowed`."""
        if self._at == len(self._values):
            return NO_OPTIONS
        value = self._map("options")
        self.end()
        return self._of_names(value, allowed)

    def fields(self, name: str, *allowed: str) -> OptionArguments:
        """Take a map; refuses names that are not `allowed`."""
        return self._of_names(self._map(name), allowed)

    def _map(self, name: str) -> dict[bytes, Raw]:
        value = self._next(name)
        if not isinstance(value, dict):
            raise BadRequest(f"{self.method}: the {name} must be a map, not {kind_of(value)}")
        return value

    def _of_names(self, value: dict[bytes, Raw], allowed: tuple[str, ...]) -> OptionArguments:
        names = _by_bytes(allowed)
        try:
            return OptionArguments(self.method, {names[name]: option for name, option in value.items()})
        except KeyError:
            pass
        name = next(_text(given, f"{self.method}: an option's name") for given in value if given not in names)
        near = difflib.get_close_matches(name, allowed, n=1)
        known = f"the options are {', '.join(allowed)}" if allowed else "the method has no options"
        hint = f"did you mean {near[0]}?" if near else known
        raise BadRequest(f"{self.method}: unknown option {name}; {hint}", {"option": name})

    def map(self, name: str) -> OptionArguments:
        """Take a map, of which unknown fields are ignored, since a later version may send more."""
        value = self._map(name)
        return OptionArguments(self.method, {name.decode(errors="replace"): field for name, field in value.items()})

    def end(self) -> None:
        """Refuse further parameters."""
        if self._at < len(self._values):
            raise BadRequest(f"{self.method} takes {_parameters(self._at)}, not {len(self._values)}")

    def _next(self, name: str) -> Raw:
        if self._at == len(self._values):
            raise BadRequest(f"{self.method}: the {name} is missing; {_parameters(self._at)} given")
        self._at += 1
        return self._values[self._at - 1]

    def _key(self, value: Raw, where: str, limit: int) -> bytes:
        if not isinstance(value, bytes):
            raise BadRequest(f"{self.method}: {where} must be bytes, not {kind_of(value)}")
        return _check_length(value, f"{self.method}: {where}", limit)


@final
class OptionArguments:
    """The options of one request; nil counts as not given.

    Raises:
        BadRequest: from every method, if the option has the wrong type.
    """

    def __init__(self, method: str, given: Mapping[str, Raw]) -> None:
        self._method = method
        self._given = given

    def text(self, name: str) -> str | None:
        value = self._given.get(name)
        return None if value is None else _text(value, self._where(name))

    def blob(self, name: str) -> bytes | None:
        value = self._given.get(name)
        if value is not None and not isinstance(value, bytes):
            raise BadRequest(f"{self._where(name)} must be bytes, not {kind_of(value)}")
        return value

    def key(self, name: str, limit: int) -> bytes | None:
        """Return at most `limit` bytes, to be compared with keys."""
        value = self.blob(name)
        return None if value is None else _check_length(value, self._where(name), limit)

    def keys(self, name: str, limit: int) -> list[bytes] | None:
        values = self._given.get(name)
        if values is None:
            return None
        if not isinstance(values, list):
            raise BadRequest(f"{self._where(name)} must be an array, not {kind_of(values)}")
        found = [value for value in values if isinstance(value, bytes)]
        if len(found) < len(values):
            raise BadRequest(f"{self._where(name)} must be an array of bytes")
        return [_check_length(value, self._where(name), limit) for value in found]

    def texts(self, name: str) -> list[str]:
        """Return an array of names; empty if not given."""
        values = self.array(name) or []
        return [_text(value, f"{self._where(name)}[{index}]") for index, value in enumerate(values)]

    def number(self, name: str, least: int = 0, most: int | None = None) -> int | None:
        value = self._given.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadRequest(f"{self._where(name)} must be an integer, not {kind_of(value)}")
        if value < least:
            raise BadRequest(f"{self._where(name)} must be at least {least}, not {value}")
        if most is not None and value > most:
            raise BadRequest(f"{self._where(name)} must be at most {most}, not {value}")
        return value

    def timeout_ms(self) -> int | None:
        return self.number("timeout_ms", most=MAX_TIMEOUT_MS)

    def flag(self, name: str) -> bool:
        """Return true or false; false if not given."""
        return bool(self.flag_or_nil(name))

    def flag_or_nil(self, name: str) -> bool | None:
        """Return true or false; None if not given."""
        value = self._given.get(name)
        if value is not None and not isinstance(value, bool):
            raise BadRequest(f"{self._where(name)} must be true or false, not {kind_of(value)}")
        return value

    def array(self, name: str) -> list[Raw] | None:
        values = self._given.get(name)
        if values is not None and not isinstance(values, list):
            raise BadRequest(f"{self._where(name)} must be an array, not {kind_of(values)}")
        return values

    def _where(self, name: str) -> str:
        return f"{self._method}: the option {name}"


NO_OPTIONS: Final = OptionArguments("", {})
