"""The file that the users stand in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.access.users import parse
from gossipkv.environment import private_file

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.access.users import Users

# Room for several thousand users.
USERS_FILE: Final = private_file.Kind("users file", 1024 * 1024)


def read(path: Path) -> Users:
    """The users in the file at `path`.

    Raises:
        ConfigError: see `parse` and `private_file.read_text`.
    """
    return parse(private_file.read_text(path, USERS_FILE), str(path))
