"""Removal of secrets from text: the parts of a URL or a store's options that messages, logs and tables may show.

Only a store's own package knows which options are secret (`secret`, `password`, `token`, `account_key`, `sas_token` and
so on). So every option's value counts as secret, and only its name is shown.
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

# Text between `//` and the last `@` before the path: `user:password`.
_USER: Final = re.compile(r"(?<=://)[^/\s]*@")

# The same where the text was cut before the `@`, which may have been longer than what is shown.
_CUT_USER: Final = re.compile(r"(?<=://)[^/\s]*\Z")

# Text behind `?`: the signature of a presigned URL, a token.
_QUERY: Final = re.compile(r"(://[^\s?\"'<>]*\?)([^\s\"'<>]+)")

# A URL as fsspec writes it, including chains (`simplecache::s3://`).
_URL: Final = re.compile(r"[a-zA-Z][-+.:a-zA-Z0-9]*://")

# A shorter secret would occur in many words by chance, and reveals nothing.
_SHORTEST_SECRET: Final = 4
# These options name a place, and messages about an unreachable store must show it.
_PLACES: Final = frozenset({"endpoint_url", "region_name", "host", "port", "protocol", "anon", "addressing_style"})


def is_url(text: str) -> bool:
    """Return True for a URL, False for a path."""
    return _URL.match(text) is not None


def mask_url(text: str) -> str:
    """Return a URL, or a message with URLs, without users, passwords and queries."""
    return _QUERY.sub(rf"\1{MASK}", _USER.sub(f"{MASK}@", text))


def mask_cut_url(text: str) -> str:
    """Return the beginning of a longer text as `mask_url` does, without a user or password that it may end in."""
    return mask_url(_CUT_USER.sub(MASK, text))


def scrub(text: str, url: str, options: Mapping[str, Option]) -> str:
    """Remove the secrets of a URL and of options from another package's message about them."""
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
    """Yield every option that is no table, as `name.of.it` and value."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield above + name, value


def is_place(name: str) -> bool:
    """Return True if an option, named as by `leaves`, only names the place of a store."""
    return name.rpartition(".")[2] in _PLACES
