"""A setting: its description for people, and the parsing of its text.

Functions for each kind (`duration`, `size`, `count`, …) make a section's field, whose metadata is its `Setting`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar, final

from gossipkv.address import Address, parse_address
from gossipkv.settings.masking import is_url, mask_url
from gossipkv.settings.nearest import near
from gossipkv.settings.node_variables import APART, OWN_NAME
from gossipkv.settings.quantity import DURATION, RATE, SIZE, parse, show

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")

Value = bool | int | str | Path | Address | tuple[Address, ...] | tuple[str, ...] | None

PREFIX: Final = "GOSSIPKV_"

UNITS: Final = {"duration": DURATION, "size": SIZE, "rate": RATE}
_NO_WORDS: Final[Mapping[str, int]] = MappingProxyType({})
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
_RATIO: Final = re.compile(r"([01])(?:\.([0-9]{1,3})0*)?", re.ASCII)
_NAME: Final = re.compile(r"[-_.a-zA-Z0-9]{1,64}")

THOUSANDTHS: Final = 1000  # A ratio of 1.
NAME_FORM: Final = "1 to 64 of the characters - _ . a-z A-Z 0-9"


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as shown to people; the list of settings sets `name` from its field."""

    name: str
    kind: str
    default: str
    allowed: str
    meaning: str
    why: str
    parse: Callable[[str], Value] = field(repr=False)
    show: Callable[[Value], str] = field(repr=False)

    @property
    def variable(self) -> str:
        """The name in the environment."""
        return OWN_NAME if self.name == "node" else PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def off_flag(self) -> str:
        """The flag that turns an on-off setting off."""
        return "--no-" + self.name.replace("_", "-")

    def arguments(self, text: str) -> list[str]:
        """Return command-line arguments for this value; an on-off setting takes no value there.

        Raises:
            ValueError: the setting is on or off, and the text is neither.
        """
        if self.kind != "bool":
            return [self.flag, text]
        return [self.flag if self.parse(text) else self.off_flag]


def say(value: Value) -> str:
    """Return a value as people write it; empty for None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple) and not isinstance(value, Address):
        return ",".join(map(str, value)) or "none"
    return "" if value is None else str(value)


def described(
    kind: str, default: str, allowed: str, read: Callable[[str], Value], *, meaning: str, why: str
) -> dict[str, Setting]:
    """Return the metadata of a field whose values are text with a rule."""
    return {"setting": Setting("", kind, default, allowed, meaning, why, read, lambda value: mask_url(say(value)))}


def plain(
    value: _T, kind: str, default: str, allowed: str, read: Callable[[str], Value], *, meaning: str, why: str
) -> _T:
    """Make a setting whose values are text with a rule; `default` is the text of the default `value`."""
    return field(default=value, metadata=described(kind, default, allowed, read, meaning=meaning, why=why))


def _quantity(kind: str, default: str, low: str, high: str, *, meaning: str, why: str, zero: str = "") -> int:
    units = UNITS[kind]
    least, most = parse(low, units), parse(high, units)

    def read(text: str) -> int:
        value = 0 if zero and text.strip() in {"0", zero} else parse(text, units)
        if not least <= value <= most and not (zero and value == 0):
            raise ValueError("out of range")
        return value

    def spell(value: Value) -> str:
        assert isinstance(value, int)
        return zero if zero and value == 0 else show(value, units)

    allowed = f"{low} to {high}, or {zero}" if zero else f"{low} to {high}"
    setting = Setting("", kind, default, allowed, meaning, why, read, spell)
    return field(default=read(default), metadata={"setting": setting})


def duration(default: str, low: str, high: str, *, meaning: str, why: str, zero: str = "") -> int:
    """Make a setting in milliseconds; `zero` is the word for 0, if 0 is allowed."""
    return _quantity("duration", default, low, high, meaning=meaning, why=why, zero=zero)


def size(default: str, low: str, high: str, *, meaning: str, why: str, zero: str = "") -> int:
    """Make a setting in bytes."""
    return _quantity("size", default, low, high, meaning=meaning, why=why, zero=zero)


def rate(default: str, low: str, high: str, *, meaning: str, why: str, zero: str = "") -> int:
    """Make a setting in bytes per second."""
    return _quantity("rate", default, low, high, meaning=meaning, why=why, zero=zero)


def count(default: int, low: int, high: int, *, meaning: str, why: str, words: Mapping[str, int] = _NO_WORDS) -> int:
    """Make a setting that is a plain number; `words` are names for special numbers."""

    def read(text: str) -> int:
        digits = text.strip()
        if digits in words:
            return words[digits]
        if digits == "0" and 0 in words.values():
            return 0
        if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(high))):
            raise ValueError("expected a whole number without a unit")
        if not low <= int(digits) <= high:
            raise ValueError("out of range")
        return int(digits)

    def spell(value: Value) -> str:
        return next((word for word, number in words.items() if number == value), str(value))

    allowed = ", or ".join([f"{low} to {high}", *words])
    setting = Setting("", "count", spell(default), allowed, meaning, why, read, spell)
    return field(default=default, metadata={"setting": setting})


def ratio(default: str, *, meaning: str, why: str) -> int:
    """Make a setting that is a fraction, in thousandths; `off` is 0."""

    def read(text: str) -> int:
        if text.strip() in {"off", "0"}:
            return 0
        match = _RATIO.fullmatch(text.strip())
        thousandths = 0 if match is None else int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0"))
        if not 1 <= thousandths <= THOUSANDTHS:
            raise ValueError("expected a number above 0 and at most 1, with at most three decimals")
        return thousandths

    def spell(value: Value) -> str:
        assert isinstance(value, int)
        return f"{value / THOUSANDTHS:g}" if value else "off"

    setting = Setting("", "ratio", default, "0.001 to 1, or off", meaning, why, read, spell)
    return field(default=read(default), metadata={"setting": setting})


def copies(default: int, allowed: tuple[int, ...], *, meaning: str, why: str) -> int:
    """Make a setting that is one of a few numbers."""
    words = {str(number): number for number in allowed}

    def read(text: str) -> int:
        if text.strip() not in words:
            raise ValueError("not an allowed number")
        return words[text.strip()]

    return plain(default, "count", str(default), " or ".join(words), read, meaning=meaning, why=why)


def switch(*, default: bool, meaning: str, why: str) -> bool:
    """Make a setting that is on or off."""

    def read(text: str) -> bool:
        word = text.strip().lower()
        if word not in _TRUE | _FALSE:
            raise ValueError("expected true or false")
        return word in _TRUE

    return plain(default, "bool", say(default), "true or false", read, meaning=meaning, why=why)


def choice(default: str, options: tuple[str, ...], *, meaning: str, why: str) -> str:
    """Make a setting that is one of a few words."""

    def read(text: str) -> str:
        if text.strip() not in options:
            raise ValueError(f"not an allowed word{near(text.strip().lower(), options)}")
        return text.strip()

    return plain(default, "choice", default, " or ".join(options), read, meaning=meaning, why=why)


def read_name(text: str) -> str:
    """Check the name of a node or a cluster."""
    if _NAME.fullmatch(text) is None:
        raise ValueError("not a valid name")
    return text


def read_node_name(text: str) -> str:
    """Check the name of a node; refuses an address, which is for commands."""
    if ":" in text:
        raise ValueError(f"an address, not a name; {APART}")
    return read_name(text)


def read_isolation_group(text: str) -> str:
    """Return the name of an isolation group, or an empty string for `none`."""
    return "" if text in {"", "none"} else read_name(text)


def read_path(text: str) -> Path:
    """Return a path, with `~` expanded."""
    if not text or "\0" in text:
        raise ValueError("expected a path")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # Python's error for a `~name` with an unknown home.
        raise ValueError(str(error)) from None


def read_source(text: str) -> str:
    """Return a URL unchanged; a path with `~` expanded."""
    local = text.removeprefix("file://").removeprefix("local://")
    if not is_url(local):
        return str(read_path(local))
    if not text.isprintable():
        raise ValueError("expected a URL")
    return text


def read_listen(text: str) -> Address | None:
    """Return the listening address, or None for `off`."""
    return None if text.strip() == "off" else parse_address(text)


def read_addresses(text: str) -> tuple[Address, ...]:
    """Parse addresses separated by commas."""
    if text.strip() in {"", "none"}:
        return ()
    found = tuple(parse_address(part) for part in text.split(",") if part.strip())
    if any(address.port == 0 for address in found):
        raise ValueError("expected a port other than 0")
    return tuple(dict.fromkeys(found))


def read_advertised(text: str) -> Address | None:
    """Parse an address that others can reach, so no wildcard."""
    if text.strip() == "as listen":
        return None
    address = parse_address(text)
    if address.host == "*" or _is_wildcard(address.host):
        raise ValueError("expected an address that other nodes can reach")
    return address


def read_ip_address(text: str) -> str | None:
    """Return a numeric address that others can reach, or None for `as resolved`."""
    if text.strip() == "as resolved":
        return None
    address = ipaddress.ip_address(text.strip())
    if address.is_unspecified:
        raise ValueError("expected an address that other nodes can reach")
    return str(address)


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
