"""The open files of versions: closed after their last read, reopened if their maps were lost.

A map is lost when its file was truncated under it, or when the disk failed to read a page.  A lost map answers nothing
again, while the other files continue.  A disk may recover, so the file is reopened at once and then after pauses.  From
the first failure on, the version is also rebuilt as other damaged ones are; the first to succeed is served.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, final

import trio

from gossipkv.dataset.build.trouble import trouble_of
from gossipkv.dataset.lifecycle.copy_states import CopyState
from gossipkv.dataset.lifecycle.version_states import VersionState
from gossipkv.dataset.local.version import open_lost
from gossipkv.dataset.rewriting import pauses
from gossipkv.errors import Corrupt, StorageError, UnsupportedFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gossipkv.dataset.lifecycle.copy_states import VersionCopy
    from gossipkv.dataset.lifecycle.version_states import Life
    from gossipkv.dataset.local.version import Version
    from gossipkv.dataset.shared_resources import SharedResources
    from gossipkv.environment.seam import Threads
    from gossipkv.errors import GossipKVError
    from gossipkv.storage.sorted_file import SortedFile

# A pinned file is pinned for a batch of reads.
UNPIN_POLL_S = 0.05


async def close(version: Version, threads: Threads) -> None:
    """Close the files of a version that is no longer served, after the last read."""
    while True:
        try:
            await threads.run(version.close)
        except BufferError:
            await trio.sleep(UNPIN_POLL_S)
        else:
            return


@final
class Reopening:
    """Reopens the lost maps of one database's versions."""

    def __init__(
        self,
        database: str,
        lives: Mapping[str, Life],
        versions: dict[str, Version],
        shared: SharedResources,
        *,
        wake: Callable[[], None],
        log_complete: Callable[[Life], None],
    ) -> None:
        """Create it; `log_complete` is called with the life of a version that was damaged and is whole again."""
        self._database = database
        self._lives = lives
        self._versions = versions
        self._shared = shared
        self._wake = wake
        self._log_complete = log_complete
        self._log = shared.log.bind(database=database)
        self._lost: dict[Version, dict[int, int]] = {}  # Each version's lost files still to reopen, as `Version.lost`.

    def note(self, version: Version, error: Corrupt) -> None:
        """Note that a read met a lost map; many reads may meet it before the file is open again."""
        if version not in self._lost:
            self._lost = {noted: lost for noted, lost in self._lost.items() if self._is_served(noted)}
            self._lost[version] = version.lost
            copy = self._copy_of(version)
            if copy.trouble is None:
                copy.trouble = trouble_of(error)
            self._log.error("damaged", version=version.name, error=error.message)
            self._wake()

    def begin(self, nursery: trio.Nursery) -> None:
        """Reopen the files noted since the last call."""
        for version, lost in self._lost.items():
            if lost:
                self._lost[version] = {}
                nursery.start_soon(self._open, version, lost)

    async def _open(self, version: Version, lost: dict[int, int]) -> None:
        store = self._shared.store
        place = store.version_path(self._database, version.name)
        for pause_s in pauses():
            try:
                opened = await self._shared.threads.run(open_lost, store.files, place, version.manifest, lost)
            except (Corrupt, UnsupportedFormat, StorageError) as error:
                self._refuse(version, error)
            else:
                await close(self._put_in_place(version, opened), self._shared.threads)
                return
            await trio.sleep(pause_s)
            if not self._is_served(version):
                return

    def _refuse(self, version: Version, error: GossipKVError) -> None:
        life = self._lives.get(version.name)
        if not self._is_served(version) or life is None or life.state is VersionState.RETIRING:
            return
        copy = self._copy_of(version)
        if copy.damageable():
            now_ms = int(trio.current_time() * 1000)
            copy.damage(trouble_of(error), now_ms)
            again_ms = max(0, copy.not_before_ms - now_ms)
            self._log.error("damaged", version=version.name, error=error.message, again_ms=again_ms)
            self._wake()

    def _put_in_place(self, version: Version, opened: dict[int, SortedFile]) -> Version:
        """Serve the reopened files beside the others; return the version to close."""
        if not self._is_served(version):
            return replace(version, files=list(opened.values()))
        copy = self._copy_of(version)
        self._versions[version.name] = replace(
            version, files=[opened.get(partition, file) for partition, file in enumerate(version.files)]
        )
        found = None if copy.trouble is None else copy.trouble.details.get("file")
        self._log.info("opened", version=version.name)
        if found in {file.name for file in opened.values()}:  # Nothing else is wrong with the copy.
            if copy.state is CopyState.ERROR:
                copy.opened(version.identity, self._versions[version.name].here)
                self._log_complete(self._lives[version.name])
            else:
                copy.trouble = None
        self._shared.on_change()
        self._wake()
        return replace(
            version, files=[file if partition in opened else None for partition, file in enumerate(version.files)]
        )

    def _copy_of(self, version: Version) -> VersionCopy:
        copy = self._lives[version.name].copy
        assert copy is not None, version.name
        return copy

    def _is_served(self, version: Version) -> bool:
        return self._versions.get(version.name) is version
