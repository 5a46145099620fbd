"""A built version, opened: its manifest and its sorted files, one for each partition.

Opening reads the manifest, compares every file's size and footer with it, and looks at each header; the records are
checked page by page when they are first touched.  So 10 GB open in well under a second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gossipkv.dataset.local.manifest import MANIFEST, Manifest, PartitionFile, partition_name, read_manifest
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
    from gossipkv.placement.identity import Identity


@dataclass(eq=False, slots=True)
class Version:
    """A version that can be served; `files[i]` is partition i, or None when it is not held here."""

    manifest: Manifest
    files: list[SortedFile | None]
    checked_ms: int = 0  # By the wall clock: when it was built, or last read back.
    scrubbed: Scrubbed | None = None  # How it was last read back.

    @property
    def identity(self) -> Identity:
        """What it is."""
        return self.manifest.identity

    @property
    def database(self) -> str:
        """The name of its database."""
        return self.manifest.identity.database

    @property
    def name(self) -> str:
        """The name of the version."""
        return self.manifest.identity.version

    @property
    def partitions(self) -> int:
        """N."""
        return self.manifest.identity.partitions

    @property
    def function(self) -> str:
        """The partition function, a name from `gossipkv.keyspace.partitioner.FUNCTIONS`."""
        return self.manifest.identity.function

    @property
    def records(self) -> int:
        """Records served."""
        return self.manifest.records

    @property
    def duplicates(self) -> int:
        """Records of the source that a later one replaced."""
        return self.manifest.duplicates

    @property
    def size_bytes(self) -> int:
        """What its files take on the disk."""
        return self.manifest.size_bytes

    @property
    def here(self) -> PartitionSet:
        """The partitions that are open."""
        return PartitionSet.of(self.partitions, (at for at, file in enumerate(self.files) if file is not None))

    @property
    def share(self) -> PartitionSet:
        """The partitions that are to be here."""
        share = self.manifest.share
        return PartitionSet.whole(self.partitions) if share is None else share

    def with_partitions(self, built: Manifest, opened: Mapping[int, SortedFile]) -> Version:
        """What takes its place once these partitions are here, too; the other files are the same."""
        assert not any(self.files[partition] for partition in opened), "what is served is dropped before it is replaced"
        files = [opened.get(partition, file) for partition, file in enumerate(self.files)]
        return replace(self, manifest=self.manifest.joined(built), files=files)

    def without_partitions(self, partitions: PartitionSet) -> tuple[Version, Version]:
        """What takes its place once these partitions are no longer served; and they, which are to be closed."""
        left = list(self.files)
        gone: list[SortedFile | None] = [None] * self.partitions
        for partition in partitions:
            gone[partition], left[partition] = left[partition], None
        return replace(self, manifest=self.manifest.without(partitions), files=left), replace(self, files=gone)

    def forget_checks(self, part: int, parts: int) -> None:
        """Have one of so many parts of every file checked again; whoever counts `part` up has gone round all of them.

        Files take their parts at different times: of small ones most parts are empty.
        """
        for partition, file in enumerate(self.files):
            if file is not None:
                file.forget_checks((part + partition) % parts, parts)

    def distrust(self) -> None:
        """Have every page checked whenever it is read."""
        for file in self.files:
            if file is not None:
                file.distrust()

    @property
    def lost(self) -> dict[int, int]:
        """Partitions whose file was cut short while it was mapped, or not given by its disk; the first byte missed."""
        found = ((partition, file.lost_at) for partition, file in enumerate(self.files) if file is not None)
        return {partition: offset for partition, offset in found if offset is not None}

    @property
    def lost_names(self) -> set[str]:
        """The names of those files, as errors have them."""
        return {file.name for file in self.files if file is not None and file.lost_at is not None}

    def close(self) -> None:
        """Closes the files.

        Raises:
            BufferError: one is pinned; those before it are closed, and calling again closes the rest.
        """
        for partition, file in enumerate(self.files):
            if file is not None:
                file.close()
                self.files[partition] = None


def open_version(files: Files, directory: PurePath, database: str, name: str) -> Version:
    """Opens the version that was built in `directory`.

    Raises:
        Corrupt: a file is missing, of another size, damaged, or of another version.
        UnsupportedFormat: a file was written by a newer program.
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
    files: Files, directory: PurePath, manifest: Manifest, partitions: Iterable[int]
) -> dict[int, SortedFile]:
    """Open some partitions of a version.  Raises as `open_version` does."""
    opened: dict[int, SortedFile] = {}
    place = directory
    try:
        for partition in partitions:
            expected = manifest.files[partition]
            assert expected is not None, partition
            place = directory / expected.name
            opened[partition] = open_partition(files, directory, expected)
    except BaseException as error:
        for file in opened.values():
            file.close()
        if isinstance(error, OSError):
            raise _refused(error, place) from error
        raise
    return opened


def open_lost(files: Files, directory: PurePath, manifest: Manifest, lost: Mapping[int, int]) -> dict[int, SortedFile]:
    """Open partitions anew that were lost in their maps, each with the first byte missed, if it can be read again.

    Raises:
        Corrupt: a file is missing, cut short, or another one now.
        UnsupportedFormat: one is of a newer program now.
        StorageError: the system refused, as it does while the disk fails.
    """
    opened = open_partitions(files, directory, manifest, lost)
    place = directory
    try:
        for partition, offset in lost.items():
            place = directory / partition_name(partition)
            _read_page(files, place, offset)
    except BaseException as error:
        for file in opened.values():
            file.close()
        if isinstance(error, OSError):
            raise _refused(error, place) from error
        raise
    return opened


def _read_page(files: Files, path: PurePath, offset: int) -> None:
    """Read the page around a byte, and not through a map.  Raises OSError."""
    descriptor = files.open(path)
    try:
        files.pread(descriptor, PAGE_BYTES, offset - offset % PAGE_BYTES)
    finally:
        files.close(descriptor)


def _refused(error: OSError, path: PurePath) -> StorageError:
    place = str(error.filename or path)
    return StorageError(f"{place}: cannot be opened: {error.strerror}", {"file": place, "errno": error.errno})


def read_version(files: Files, directory: PurePath, database: str, name: str) -> Manifest:
    """The manifest of the version that was built in `directory`.

    Raises:
        Corrupt: it is missing, damaged, or of another version.
        UnsupportedFormat: it was written by a newer program.
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
            "the manifest of another version",
            expected=f"{database}/{name}",
            got=f"{identity.database}/{identity.version}",
        )
    return manifest


def open_partition(files: Files, directory: PurePath, expected: PartitionFile) -> SortedFile:
    """A sorted file, if it is the one that the manifest lists.  Raises as `open_version` does, or OSError."""
    path = directory / expected.name
    try:
        size_bytes, seal = look_at_seal(files, path)
    except FileNotFoundError as error:
        raise Corrupt(str(path), 0, "the file is missing") from error
    expected.check_size(str(path), size_bytes)
    expected.check_seal(str(path), seal)
    return SortedFile(path, files=files)
