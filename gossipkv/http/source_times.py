"""When versions were last modified at their source, asked of the node once a version.

The time of a version does not change once it is known.  One that a node does not tell yet, as it has just heard of the
version, is asked for again after `AGAIN_S`; until then its values have no `Last-Modified`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from gossipkv.http.answers import Asker

AGAIN_S: Final = 1.0  # A question costs the node a map for each database: once a second is nothing.

_LATEST_MS: Final = 253_402_300_799_999  # The end of the year 9999, the last one that HTTP can say.


@final
class SourceTimes:
    """The times of versions; one question at a time, whoever waits for it."""

    def __init__(self, ask: Asker) -> None:
        self._ask = ask
        self._known: dict[tuple[str, str], int] = {}
        self._unknown: dict[tuple[str, str], float] = {}
        self._asking = trio.Lock()

    async def of(self, database: str, version: str) -> int | None:
        """Return when a version was modified, in whole seconds since the epoch, or None where nobody knows."""
        name = (database, version)
        if (time_s := self._known.get(name)) is not None:
            return time_s
        async with self._asking:
            if name not in self._known and self._unknown.get(name, 0.0) <= trio.current_time():
                await self._look()
                self._note_unknown(name)
        return self._known.get(name)

    async def _look(self) -> None:
        """Learn what the node tells now; what it has forgotten is forgotten here."""
        try:
            told = await self._ask.call("databases")
        except GossipKVError:
            return
        found = dict(_times(told))
        self._known = {name: self._known.get(name, time_s) for name, time_s in found.items()}

    def _note_unknown(self, name: tuple[str, str]) -> None:
        now = trio.current_time()
        self._unknown = {each: at for each, at in self._unknown.items() if at > now}
        if name not in self._known:
            self._unknown[name] = now + AGAIN_S


def _times(told: object) -> list[tuple[tuple[str, str], int]]:
    """What an answer says of versions; what is not as it should be says nothing."""
    found = []
    for each in told if isinstance(told, list) else []:
        match each:
            case {"name": str(database), "times": dict(times)}:
                for version, time_ms in times.items():
                    if isinstance(version, str) and isinstance(time_ms, int) and 0 <= time_ms <= _LATEST_MS:
                        found.append(((database, version), time_ms // 1000))
    return found
