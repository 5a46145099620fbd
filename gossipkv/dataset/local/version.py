"""A built version, opened: its manifest and its sorted files, one for each partition.

Opening reads the manifest, compares every file's size and footer with it, and checks each header.  Records are checked
page by page when they are first touched, so 10 GB open in well under a second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gossipkv.dataset.local.manifest import MANIFEST, PartitionFile, VersionManifest, read_manifest
from gossipkv.dataset.local.scrubbed import read_scrubbed
from gossipkv.errors import Corrupt, StorageError
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.storage.label import PAGE_BYTES, look_at_seal
from gossipkv.storage.sorted_file import SortedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import PurePath

    from gossipkv.dataset.local.scrubbed import Scrubbed
    from gossipkv.environment.seam import Files
    from gossipkv.placement.identity import VersionIdentity


@dataclass(eq=False, slots=True)
class Version:
    """A version that can be served; `files[i]` is partition i, or None if it is not held here."""

    manifest: VersionManifest
    files: list[SortedFile | None]
    checked_ms: int = 0  # Wall-clock time when the version was built, or last read back.
    scrubbed: Scrubbed | None = None  # The result of the last reading back.

    @property
    def identity(self) -> VersionIdentity:
        return self.manifest.identity

    @property
    def database(self) -> str:
        return self.manifest.identity.database

    @property
    def name(self) -> str:
        return self.manifest.identity.version

    @property
    def partitions(self) -> int:
        return self.manifest.identity.partitions

    @property
    def function(self) -> str:
        return self.manifest.identity.function

    @property
    def records(self) -> int:
        return self.manifest.records

    @property
    def duplicates(self) -> int:
        return self.manifest.duplicates

    @property
    def size_bytes(self) -> int:
        return self.manifest.size_bytes

    @property
    def here(self) -> PartitionSet:
        """Return the partitions that are open."""
        return PartitionSet.of(self.partitions, (at for at, file in enumerate(self.files) if file is not None))

    @property
    def share(self) -> PartitionSet:
        """Return the partitions that should be here."""
        share = self.manifest.share
        return PartitionSet.whole(self.partitions) if share is None else share

    def with_partitions(self, built: VersionManifest, opened: Mapping[int, SortedFile]) -> Version:
        """Return the version with these partitions added; the other files are shared."""
        assert not any(self.files[partition] for partition in opened), "what is served is dropped before it is replaced"
        files = [opened.get(partition, file) for partition, file in enumerate(self.files)]
        return replace(self, manifest=self.manifest.joined(built), files=files)

    def without_partitions(self, partitions: PartitionSet) -> tuple[Version, Version]:
        """Return the version without these partitions, and a version of only them, to be closed."""
        left = list(self.files)
        gone: list[SortedFile | None] = [None] * self.partitions
        for partition in partitions:
            gone[partition], left[partition] = left[partition], None
        return replace(self, manifest=self.manifest.without(partitions), files=left), replace(self, files=gone)

    def forget_checks(self, part: int, parts: int) -> None:
        """Forget the page checks in one of `parts` parts of every file, so that later reads repeat them.

        Files take their parts at different times, since most parts of small files are empty.
        """
        for partition, file in enumerate(self.files):
            if file is not None:
                file.forget_checks((part + partition) % parts, parts)

    def distrust(self) -> None:
        """Check every page on each read from now on."""
        for file in self.files:
            if file is not None:
                file.distrust()

    @property
    def lost(self) -> dict[int, int]:
        """Return the partitions whose map was lost (truncated, or failed by the disk), with the first missing byte."""
        found = ((partition, file.lost_at) for partition, file in enumerate(self.files) if file is not None)
        return {partition: offset for partition, offset in found if offset is not None}

    @property
    def lost_names(self) -> set[str]:
        """Return the names of the lost files, as in errors."""
        return {file.name for file in self.files if file is not None and file.lost_at is not None}

    def close(self) -> None:
        """Close the files.

        Raises:
            BufferError: a file is pinned; earlier files are closed, and another call closes the rest.
        """
        for partition, file in enumerate(self.files):
            if file is not None:
                file.close()
                self.files[partition] = None


def open_version(files: Files, directory: PurePath, database: str, name: str) -> Version:
    """Open the version that was built in `directory`.

    Raises:
        Corrupt: a file is missing, of another size, damaged, or of another version.
        UnsupportedFormat: a newer program wrote a file.
        StorageError: the system refused.
    """
    try:
        manifest = read_version(files, directory, database, name)
        version = Version(manifest, [None] * manifest.identity.partitions)
        version.scrubbed = read_scrubbed(files, directory)
        built_ms = files.stat(directory / MANIFEST).modified_ns // 1_000_000
        version.checked_ms = built_ms if version.scrubbed is None else version.scrubbed.at_ms
        try:
            for partition, file in enumerate(manifest.files):
                if file is not None:
                    version.files[partition] = open_partition(files, directory, file)
        except BaseException:
            version.close()
            raise
    except OSError as error:
        raise _refused(error, directory) from error
    return version


def open_partitions(
    files: Files, directory: PurePath, manifest: VersionManifest, partitions: Iterable[int]
) -> dict[int, SortedFile]:
    """Open some partitions of a version.  Raises as `open_version` does."""
    return open_lost(files, directory, manifest, dict.fromkeys(partitions))


def open_lost(
    files: Files, directory: PurePath, manifest: VersionManifest, lost: Mapping[int, int | None]
) -> dict[int, SortedFile]:
    """Reopen partitions that lost their map, given the first missing byte of each, if it can be read again.

    Raises:
        Corrupt: a file is missing, truncated, or another one now.
        UnsupportedFormat: a file is of a newer program now.
        StorageError: the system refused, as it does while the disk fails.
    """
    opened: dict[int, SortedFile] = {}
    path = directory
    try:
        for partition, offset in lost.items():
            expected = manifest.files[partition]
            assert expected is not None, partition
            path = directory / expected.name
            opened[partition] = open_partition(files, directory, expected)
            if offset is not None:
                _read_page(files, path, offset)
    except BaseException as error:
        for file in opened.values():
            file.close()
        if isinstance(error, OSError):
            raise _refused(error, path) from error
        raise
    return opened


def _read_page(files: Files, path: PurePath, offset: int) -> None:
    """Read the page around a byte without a map.  Raises OSError."""
    descriptor = files.open(path)
    try:
        files.pread(descriptor, PAGE_BYTES, offset - offset % PAGE_BYTES)
    finally:
        files.close(descriptor)


def _refused(error: OSError, path: PurePath) -> StorageError:
    place = str(error.filename or path)
    return StorageError(f"{place}: the file cannot be opened: {error.strerror}", {"file": place, "errno": error.errno})


def read_version(files: Files, directory: PurePath, database: str, name: str) -> VersionManifest:
    """Read the manifest of the version that was built in `directory`.

    Raises:
        Corrupt: it is missing, damaged, or of another version.
        UnsupportedFormat: a newer program wrote it.
        OSError: the system refused.
    """
    try:
        manifest = read_manifest(files, directory)
    except FileNotFoundError as error:
        raise Corrupt(str(directory / MANIFEST), 0, "the manifest is missing") from error
    identity = manifest.identity
    if (identity.database, identity.version) != (database, name):
        raise Corrupt(
            str(directory / MANIFEST),
            0,
            "the manifest belongs to another version",
            expected=f"{database}/{name}",
            got=f"{identity.database}/{identity.version}",
        )
    return manifest


def open_partition(files: Files, directory: PurePath, expected: PartitionFile) -> SortedFile:
    """Open a sorted file if it matches the manifest.  Raises as `open_version` does, or OSError."""
    path = directory / expected.name
    try:
        size_bytes, seal = look_at_seal(files, path)
    except FileNotFoundError as error:
        raise Corrupt(str(path), 0, "the file is missing") from error
    expected.check_size(str(path), size_bytes)
    expected.check_seal(str(path), seal)
    return SortedFile(path, files=files)
