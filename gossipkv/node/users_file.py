"""The users file, as a node goes by it: read at the start, at SIGHUP, and when it has changed.

What cannot be read, or is not right, changes nothing: the users stay who they were, and the log says why.
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

# A token that was taken away is good for so long, and then for as long as its connections take to end.
LOOK_S: Final = 0.5


@final
class UsersFile:
    """Follows the file at `path`, if there is one; `on_change` is given the users that it has from then on."""

    def __init__(
        self,
        path: Path | None,
        environment: Environment,
        on_change: Callable[[Users], object],
        databases: Callable[[], Collection[str]],
    ) -> None:
        """`databases`: the names of all that there are, by which misspelt patterns are found."""
        self._path = path
        self._environment = environment
        self._on_change = on_change
        self._databases = databases
        self._log = Log("gossipkv.node")

    async def run(self) -> None:
        """Read it anew whenever it has changed, until cancelled."""
        if self._path is None:
            return
        file = WatchedFiles([self._path], self._environment.threads)
        while True:
            await trio.sleep(LOOK_S)
            if await file.have_changed():
                await self.read()

    async def read(self) -> None:
        """Go by what stands there now."""
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
    """The users of the file.  Raises ConfigError."""
    return parse(small_file.read_text(path, USERS_FILE), str(path))
