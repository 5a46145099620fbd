"""The users, and their rights, as read from the users file.

    [ana]                                   # also for certificates with that name
    token = "sha256:9f86d081…"              # 64 digits; without it: by a certificate only
    may = ["read:geo*", "write:carts"]

    [anonymous]                             # connections without a token or certificate
    may = ["read:public"]

An invalid file is refused as a whole, with one sentence; a reload then keeps the old users.

The file has a token's SHA-256, unsalted and in one pass. That is enough: a token is 32 random bytes, so neither
guessing nor tables of hashes help. Slow hashes are for passwords that people choose; here each would cost a node tens
of milliseconds for any sender.

A user has the rights of its own lines only, without those of `anonymous`: a token that may read `geo` reads nothing
else. No message, and no `repr`, contains a token or its hash.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import tomllib
from base64 import urlsafe_b64encode
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from gossipkv.access.rights import Grant, parse_grant
from gossipkv.environment import small_file
from gossipkv.errors import ConfigError
from gossipkv.settings.setting import NAME_FORM, read_name
from gossipkv.settings.toml_lines import line_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gossipkv.access.rights import Right

ANONYMOUS: Final = "anonymous"

# Room for several thousand users.
USERS_FILE: Final = small_file.Kind("users file", 1024 * 1024)

TOKEN_BYTES: Final = 32
# A token has 47 bytes; longer input is refused without hashing it.
MAX_TOKEN_BYTES: Final = 256

# Users are looked up by a prefix of the digest, whose timing reveals nothing of a token; the whole digest is then
# compared in constant time.
_LOOKED_UP_BYTES: Final = 8
_NO_DIGEST: Final = bytes(sha256().digest_size)

_TOKEN: Final = re.compile(r"sha256:([0-9a-f]{64})")


def token_of(secret: bytes) -> str:
    """Return a token as text, with a prefix by which secret scanners of logs and repositories recognize it."""
    return f"gkv-{urlsafe_b64encode(secret).decode().rstrip('=')}"


def digest_of(token: bytes) -> bytes:
    """Return the digest that is stored for a token."""
    return sha256(token).digest()


@final
@dataclass(frozen=True, slots=True)
class User:
    """One user.

    Attributes:
        digest: Of the token; None: there is no token.
    """

    name: str
    grants: tuple[Grant, ...] = ()
    digest: bytes | None = field(default=None, repr=False)

    def may(self, needed: Right, database: str | None = None) -> bool:
        """Return True if one of the needed rights is granted for this database or none, or if no right is needed."""
        return not needed or any(grant.right & needed and grant.holds(database) for grant in self.grants)


@final
class Users:
    """All users."""

    def __init__(self, users: Iterable[User] = ()) -> None:
        self.named = MappingProxyType({user.name: user for user in users})
        self.anonymous = self.named.get(ANONYMOUS, User(ANONYMOUS))
        self._by_digest = {user.digest[:_LOOKED_UP_BYTES]: user for user in self.named.values() if user.digest}

    def by_token(self, token: bytes) -> User | None:
        """Return the user of a token; the time taken reveals nothing about existing tokens."""
        if len(token) > MAX_TOKEN_BYTES:
            return None
        digest = digest_of(token)
        user = self._by_digest.get(digest[:_LOOKED_UP_BYTES])
        expected = _NO_DIGEST if user is None or user.digest is None else user.digest
        return user if hmac.compare_digest(digest, expected) else None

    def unmatched(self, databases: Collection[str]) -> list[str]:
        """Return a sentence for each pattern that matches none of the databases, since it may be misspelt."""
        return [
            f"{user.name}: {grant} matches no database"
            for user in self.named.values()
            for grant in user.grants
            if grant.pattern not in {"", "*"} and not any(grant.holds(database) for database in databases)
        ]


def parse(text: str, file: str) -> Users:
    """Parse the users of a file, which errors call `file`.

    Raises:
        ConfigError: not TOML, no user, or an entry with an unknown, invalid or missing field.
    """
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib lets some errors of numbers and brackets through.
        raise ConfigError(f"{file}: the file is not TOML: {error}") from None
    if not tables:
        raise ConfigError(f"{file}: the file has no user; add a user with `gossipkv users new`")
    users: dict[bytes | str, User] = {}
    for name, table in tables.items():
        entry = _Entry(text, file, name)
        user = entry.read(table)
        other = users.setdefault(user.digest[:_LOOKED_UP_BYTES] if user.digest else name, user)
        if other is not user:
            raise ConfigError(f"{entry.where('token')}: {name}.token: {other.name} has the same token")
    return Users(users.values())


@final
class _Entry:
    """One user's part of the file."""

    def __init__(self, text: str, file: str, name: str) -> None:
        self._text = text
        self._file = file
        self._name = name

    def where(self, *fields: str) -> str:
        """Return the place of a field, or of the entry."""
        line = line_of(self._text, self._name, *fields)
        return self._file if line is None else f"{self._file}:{line}"

    def read(self, table: object) -> User:
        """Return the user."""
        try:
            read_name(self._name)
        except ValueError:
            raise ConfigError(f"{self.where()}: {self._name!r}: a user's name must have {NAME_FORM}") from None
        if not isinstance(table, dict):
            raise self._wrong(f"expected a table [{self._name}]")
        for name in table:
            if name not in {"token", "may"}:
                words = f"unknown field {name!r}; the fields are token and may"
                raise ConfigError(f"{self.where(name)}: {self._name}: {words}")
        if "may" not in table:
            raise self._wrong('the rights are missing: set may = ["read:NAME"], or [] for no rights')
        return User(self._name, self._grants(table["may"]), self._digest(table.get("token")))

    def _grants(self, value: object) -> tuple[Grant, ...]:
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self._wrong('expected an array of strings, such as ["read:geo*", "see"]', "may")
        try:
            return tuple(parse_grant(text) for text in value)
        except ValueError as error:
            raise self._wrong(str(error), "may") from None

    def _digest(self, value: object) -> bytes | None:
        """Return the digest; errors never show the value, which might be a token."""
        if value is None:
            return None
        if self._name == ANONYMOUS:
            raise self._wrong("omit it: this user is for clients without a token", "token")
        if not isinstance(value, str) or (found := _TOKEN.fullmatch(value)) is None:
            raise self._wrong(
                "expected sha256: and 64 hexadecimal digits, as `gossipkv users new` writes them", "token"
            )
        return bytes.fromhex(found[1])

    def _wrong(self, problem: str, *fields: str) -> ConfigError:
        path = ".".join((self._name, *fields))
        return ConfigError(f"{self.where(*fields)}: {path}: {problem}")


# Changes keep all other lines, since people write comments.


def added(text: str, user: User, file: str) -> str:
    """Return the text with one more user.

    Raises:
        ConfigError: the text is invalid, or the user exists already.
    """
    if text.strip() and user.name in parse(text, file).named:
        raise ConfigError(f"{file}: the user {user.name} exists; remove the user first, or choose another name")
    before = text if not text or text.endswith("\n") else f"{text}\n"
    return f"{before}\n{_entry(user)}" if before else _entry(user)


def _entry(user: User) -> str:
    header = f'["{user.name}"]' if "." in user.name else f"[{user.name}]"
    token = [] if user.digest is None else [f'token = "sha256:{user.digest.hex()}"']
    may = ", ".join(f'"{grant}"' for grant in user.grants)
    return "\n".join([header, *token, f"may = [{may}]", ""])


def removed(text: str, name: str, file: str) -> str:
    """Return the text without one user: without its header and lines up to the comments before the next header.

    Raises:
        ConfigError: the text is invalid, the user is missing, the only one, or no table of its own.
    """
    before = dict(parse(text, file).named)
    if name not in before:
        raise ConfigError(f"{file}: the file has no user {name}; its users are {', '.join(before)}")
    if len(before) == 1:
        raise ConfigError(f"{file}: {name} is the only user, and a file needs at least one")
    lines = text.splitlines(keepends=True)
    begin = (line_of(text, name) or 1) - 1
    if not lines[begin].lstrip().startswith("["):
        raise ConfigError(f"{file}:{begin + 1}: {name} is not a table of its own; remove the user in an editor")
    end = next((at for at in range(begin + 1, len(lines)) if lines[at].lstrip().startswith("[")), len(lines))
    while lines[end - 1].strip()[:1] in {"", "#"}:
        end -= 1
    after = "".join(lines[:begin] + lines[end:])
    del before[name]
    assert parse(after, file).named == before, "somebody else is gone"
    return after


FREE: Final = 5
EACH_S: Final = 1.0
# About a megabyte at 200 bytes each; beyond that the oldest failure is forgotten.
MAX_ADDRESSES: Final = 4096
# The owner of one IPv6 address has 2^64 of them.
_IPV6_PREFIX: Final = 64


@final
class Throttle:
    """Limits wrong tokens per address. Times are seconds of a monotonic clock.

    Five wrong tokens are refused without delay, and one more each second: a token bucket, stored as the moment at which
    it is full again (GCRA).

    A right token is never delayed, even beside constant failures of its address. Otherwise a client with an old token
    would lock out all others behind the same balancer or network address. The delay slows clients that retry in a loop,
    which saves the node's time. Tokens are safe by their length: nobody finds one of 2^256 at any speed, so addresses
    may be forgotten when there are too many.
    """

    def __init__(self) -> None:
        self._clear_at: OrderedDict[str, float] = OrderedDict()  # Keys are addresses; the latest failure is last.

    def wrong(self, address: str, now: float) -> bool:
        """Record a wrong token; returns True if that is one too many."""
        group = address_group(address)
        most = now + FREE * EACH_S
        clear_at = max(self._clear_at.pop(group, now), now) + EACH_S
        self._clear_at[group] = min(clear_at, most)
        if len(self._clear_at) > MAX_ADDRESSES:
            self._clear_at.popitem(last=False)
        return clear_at > most


def address_group(address: str) -> str:
    """Return the unit of counting: an IPv4 address, or an IPv6 network."""
    parsed = ipaddress.ip_address(address)
    if parsed.version == 4:  # noqa: PLR2004  # The protocol's number.
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
