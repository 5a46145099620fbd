"""The users file, as a node goes by it: read at the start, at SIGHUP, and when it has changed.

What cannot be read, or is not right, changes nothing: the users stay who they were, and the log says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.access import on_disk
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
        self._seen: tuple[int, int] | None = None
        self._log = Log("gossipkv.node")

    async def run(self) -> None:
        """Read it anew whenever it has changed, until cancelled."""
        if self._path is None:
            return
        while True:
            await trio.sleep(LOOK_S)
            seen = await self._environment.threads.run(_look, self._path)
            if seen not in {None, self._seen}:
                self._seen = seen
                await self.read()

    async def read(self) -> None:
        """Go by what stands there now."""
        if self._path is None:
            return
        try:
            users = await self._environment.threads.run(on_disk.read, self._path)
        except ConfigError as error:
            self._log.warning("users_unchanged", reason=error.message)
            return
        self._on_change(users)
        self._log.info("users", path=str(self._path), count=len(users.named))
        self.warn(users)

    def warn(self, users: Users) -> None:
        """A line for each pattern that matches nothing."""
        for reason in users.unmatched(self._databases()):
            self._log.warning("users_unmatched", reason=reason)


def _look(path: Path) -> tuple[int, int] | None:
    """What changes with the file, and with who may read it; None: nobody can tell now."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ctime_ns, found.st_ino
