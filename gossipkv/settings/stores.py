"""The stores that settings name, whose options go nowhere else; and the settings of backups.

A string of a client, or of a table's author, names one plain place: one of fsspec's chains (`simplecache::s3://…`)
would open file systems that nobody chose, with the options of another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.settings.setting import duration, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.settings.masking import Option

CLOUDS: Final = ("s3://", "s3a://", "gs://", "gcs://", "az://", "abfs://", "abfss://")  # Their URLs name no host.

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?!.*(?:::|://))[^\s?#*\\]+")


def plain_place(text: str) -> str:
    """Return an absolute path, or the URL of one store, without slashes at its end; `file://` is left out.

    Raises:
        ValueError: it is neither.
    """
    path = text.removeprefix("file://")
    is_path = path.startswith("/") and path.strip("/") and "\0" not in path and ".." not in path.split("/")
    if not is_path and (text != path or not is_plain_url(text)):
        raise ValueError("expected an absolute path without `..`, or the URL of one store without pattern and query")
    return path.rstrip("/")


def is_plain_url(text: str) -> bool:
    """Return True for the URL of one store."""
    return _URL.fullmatch(text) is not None and ".." not in text.split("/")


def read_places(text: str) -> tuple[str, ...]:
    """Parse places separated by commas.  Raises as `plain_place`."""
    if text.strip() in {"", "none"}:
        return ()
    return tuple(dict.fromkeys(plain_place(part.strip()) for part in text.split(",")))


def is_below(place: str, above: str) -> bool:
    """Return True if a path or URL is another one, or lies below it."""
    above = above.rstrip("/")
    return place == above or place.startswith(f"{above}/")


@final
@dataclass(frozen=True, slots=True)
class Stores:
    """The options of stores, by the URL below which they hold; they may be secret, so they are never shown."""

    _options: Mapping[str, Mapping[str, Option]]

    def options(self, url: str) -> Mapping[str, Option] | None:
        """Return the options for a URL, those of the longest prefix; None: no store of the settings has it."""
        prefix = max((prefix for prefix in self._options if is_below(url, prefix)), key=len, default=None)
        return None if prefix is None else self._options[prefix]


@dataclass(frozen=True, kw_only=True)
class BackupSettings:
    """Backups."""

    backup_roots: tuple[str, ...] = plain(
        (), "places", "none", "absolute paths and URLs, separated by commas", read_places,
        meaning='places of backups: directories of this machine and stores, in addition to those of `[storage."URL"]`',
        why="without users nobody may choose a place; with users, their right `operate` suffices for local directories",
    )  # fmt: skip
    backup_abandon_after: int = duration(
        "1h", "10m", "30d",
        meaning="silence at the destination after which another node's unfinished backup is removed",
        why="a node that writes a backup changes it each minute; one that is frozen may go on later",
    )  # fmt: skip
