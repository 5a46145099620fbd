"""Texts without their secrets: what a URL or a store's options may show in a message, a log line or a table.

Which option of a store is secret only its own package knows (`secret`, `password`, `token`, `account_key`, `sas_token`
and so on), so every option's value is taken for one, and its name alone is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# A value in the table of a store's options.
Option = str | bool | int | float | Mapping[str, "Option"]

MASK: Final = "***"

# What stands between `//` and the last `@` before the path: `user:password`.
_USER: Final = re.compile(r"(?<=://)[^/\s]*@")

# What stands behind `?`: the signature of a presigned URL, a token.
_QUERY: Final = re.compile(r"(://[^\s?\"'<>]*\?)([^\s\"'<>]+)")

# As fsspec writes them, chains (`simplecache::s3://`) included.
_URL: Final = re.compile(r"[a-zA-Z][-+.:a-zA-Z0-9]*://")

# A shorter one would be found in every second word, and tell nothing.
_SHORTEST_SECRET: Final = 4
# These say where, and what is not reached is to be named.
_PLACES: Final = frozenset({"endpoint_url", "region_name", "host", "port", "protocol", "anon", "addressing_style"})


def is_url(text: str) -> bool:
    """Whether it is a URL and not a path."""
    return _URL.match(text) is not None


def mask_url(text: str) -> str:
    """A URL, or a message that has some, without the users, passwords and queries in them."""
    return _QUERY.sub(rf"\1{MASK}", _USER.sub(f"{MASK}@", text))


def scrub(text: str, url: str, options: Mapping[str, Option]) -> str:
    """A message of somebody else's package without what is secret in the URL and the options that it was given."""
    secrets = {value for name, value in leaves(options) if isinstance(value, str) and not is_place(name)}
    for found in _USER.findall(url):
        secrets.update(found.removesuffix("@").split(":", 1))
    for _, query in _QUERY.findall(url):
        secrets.update(field.partition("=")[2] for field in query.split("&"))
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    return mask_url(text)


def leaves(options: Mapping[str, Option], above: str = "") -> Iterator[tuple[str, str | bool | float]]:
    """Every option that is no table, as `name.of.it` and value."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield above + name, value


def is_place(name: str) -> bool:
    """Whether an option, named as by `leaves`, says where a store is and nothing else."""
    return name.rpartition(".")[2] in _PLACES
