"""The builds of a node: one version at a time, file by file, and the removal of refuted copies."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from gossipkv.placement.identity import VersionIdentity
from tests.world.datasets.contents import DATABASE, FUNCTION
from tests.world.datasets.disk import Stored
from tests.world.scheduler import MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.dataset.cluster.core import DatabaseCore
    from gossipkv.dataset.lifecycle.decisions import Decision
    from gossipkv.dataset.lifecycle.version_states import Life
    from tests.world.datasets.contents import Content
    from tests.world.datasets.disk import DatasetDisk


@final
class Building:
    def __init__(
        self,
        core: DatabaseCore,
        lives: dict[str, Life],
        disk: DatasetDisk,
        *,
        later: Callable[[int, partial[None]], None],
        changed: Callable[[str], None],
        drop: Callable[[Stored], None],
    ) -> None:
        """`changed` is called with each version whose local copy changed; `drop` with each removed copy."""
        self._core, self._lives, self._disk = core, lives, disk
        self._later, self._changed, self._drop = later, changed, drop
        self._serial = 0

    def stop_refuted(self) -> None:
        """Stop builds that rely on a refuted function."""
        for version, life in self._lives.items():
            stored = self._disk.versions.get(version)
            if life.is_building and stored is not None and self._is_refuted(stored):
                self.stop(version)

    def obey(self, decision: Decision) -> None:
        """Add the shares that fall to this node, and drop the refuted copies."""
        for version, share in decision.want:
            life, stored = self._lives[version], self._disk.versions.get(version)
            assert life.copy is not None, version
            life.copy.want(share)
            if stored is not None:
                stored.share |= share
            self._changed(version)
        for version in decision.refute:
            copy = self._lives[version].copy
            assert copy is not None, version
            copy.refute()
        for version, stored in list(self._disk.versions.items()):
            life = self._lives[version]
            if self._is_refuted(stored) and not life.open and not life.is_building:
                self._drop(self._disk.versions.pop(version))
                self._changed(version)

    def _is_refuted(self, stored: Stored) -> bool:
        return stored.identity.function in self._refuted(stored.identity)

    def _refuted(self, identity: VersionIdentity) -> tuple[str, ...]:
        return () if identity.regrouped else self._core.refuted(identity.digest)

    def begin(self, content: Content) -> None:
        """Build the wanted partitions of a version that are missing here."""
        version, life = content.version, self._lives[content.version]
        assert life.copy is not None, version
        life.copy.begin(content.source)
        stored = self._stored(content)
        missing = list(stored.share - stored.ready)
        self._serial += 1
        files = content.partitions if stored.identity.regrouped else 1
        self._changed(version)
        self._after(content, files, partial(self._read, self._serial, content, stored, missing))

    def _stored(self, content: Content) -> Stored:
        version, digest = content.version, content.source.digest
        copy = self._lives[version].copy
        assert copy is not None, version
        share = copy.share
        assert share is not None, version
        stored = self._disk.versions.get(version)
        if stored is None:
            expected = self._core.to_follow(version)
            is_regrouped = FUNCTION in self._core.refuted(digest) if expected is None else expected.regrouped
            identity = VersionIdentity(DATABASE, version, digest, content.partitions, FUNCTION, is_regrouped)
            stored = Stored(identity, share)
            self._disk.versions[version] = stored
        return stored

    def _after(self, content: Content, files: int, do: partial[None]) -> None:
        self._later(files * content.file_ms * MS, do)

    def _read(self, serial: int, content: Content, stored: Stored, missing: list[int]) -> None:
        version = content.version
        life = self._lives.get(version)
        if serial != self._serial or life is None or life.copy is None or not life.is_building:
            return
        if stored.identity.regrouped:
            ready, missing = missing, []
        else:
            ready, missing = missing[:1], missing[1:]
            if any(map(content.has_stray, ready)):
                life.copy.stop()
                self._core.found_stray(content.source.digest, FUNCTION)
                self._changed(version)
                return
        for each in ready:
            stored.add(each, content)
        if missing:
            self._after(content, 1, partial(self._read, serial, content, stored, missing))
        elif life.copy.open:
            here = life.copy.here
            assert here is not None, version
            life.copy.add(stored.ready - here)
        else:
            life.copy.finish(stored.identity, stored.ready)
        self._changed(version)

    def stop(self, version: str) -> None:
        self._serial += 1
        copy = self._lives[version].copy
        assert copy is not None, version
        copy.stop()
