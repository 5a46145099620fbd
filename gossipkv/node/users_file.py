"""The users file, as a running node follows it: read at the start, at SIGHUP, and when it has changed.

A file that cannot be read or parsed changes nothing: the users stay as they were, and the log says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.access.users import USERS_FILE, parse
from gossipkv.environment import small_file
from gossipkv.environment.real_files import WatchedFiles
from gossipkv.errors import ConfigError
from gossipkv.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from gossipkv.access.users import Users
    from gossipkv.environment.seam import Environment

LOOK_S: Final = 0.5  # A revoked token stays valid for this long, and then until its connections have ended.


@final
class UsersFile:
    """Follows the file at `path`, if any; `on_change` is called with the users of each new reading."""

    def __init__(
        self,
        path: Path | None,
        environment: Environment,
        on_change: Callable[[Users], object],
        databases: Callable[[], Collection[str]],
    ) -> None:
        """Begin; `databases` returns the names of all databases: a pattern that matches none of them is logged."""
        self._path = path
        self._environment = environment
        self._on_change = on_change
        self._databases = databases
        self._log = Log("gossipkv.node")

    async def run(self) -> None:
        """Read the file again whenever it has changed, until cancelled."""
        if self._path is None:
            return
        file = WatchedFiles([self._path], self._environment.threads)
        while True:
            await trio.sleep(LOOK_S)
            if await file.have_changed():
                await self.read()

    async def read(self) -> None:
        """Use the users that the file has now."""
        if self._path is None:
            return
        try:
            users = await self._environment.threads.run(read, self._path)
        except ConfigError as error:
            self._log.warning("users_unchanged", reason=error.message)
            return
        self._on_change(users)
        self._log.info("users", path=str(self._path), count=len(users.named))
        for reason in users.unmatched(self._databases()):
            self._log.warning("users_unmatched", reason=reason)


def read(path: Path) -> Users:
    """Return the users of the file. Raises ConfigError."""
    return parse(small_file.read_text(path, USERS_FILE), str(path))
