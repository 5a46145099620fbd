"""Destinations for the files of a version that a job writes: a directory, or a URL that fsspec opens.

Invariant: a name, except that of an attempt, holds a complete file or nothing, whatever is interrupted, retried or run
twice at once.  In a directory a file is written and synced under a temporary name, then renamed.  In an object store an
upload appears when complete.  Other file systems get an upload under a temporary name, then a rename.

Names of attempts begin with `_attempt-`, which no reader takes for data; names left by killed attempts stay until the
version is finished.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from gossipkv.dataset.source.object_stores import open_url
from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import GossipKVError, StorageError
from gossipkv.settings.masking import Option, mask_url, scrub
from gossipkv.storage.directories import remove_tree
from gossipkv.storage.label import OpenFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gossipkv.environment.seam import Files
    from gossipkv.storage.label import RandomAccess

ATTEMPT: Final = "_attempt-"
USE: Final = "write a version"  # In errors.

# An upload appears under its name only when it is complete.
_OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "memory"})


class Destination(Protocol):
    """A directory that attempts fill."""

    @property
    def name(self) -> str:
        """Return the name used in errors."""
        ...

    def workspace(self) -> contextlib.AbstractContextManager[Path]:
        """Yield an empty local directory for one attempt; it is removed afterwards with its remaining files."""
        ...

    def publish(self, path: Path, name: str) -> None:
        """Move a finished file of the workspace to its name, which may be in a directory, replacing an earlier file."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write a small file atomically."""
        ...

    def names(self) -> list[str]:
        """Return all names, sorted; none if the directory does not exist."""
        ...

    def exists(self, name: str) -> bool:
        """True if the name exists."""
        ...

    def open(self, name: str) -> contextlib.AbstractContextManager[RandomAccess]:
        """Open a file for reading."""
        ...

    def remove_attempts(self) -> None:
        """Remove the leftovers of killed attempts."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file or a directory with all that is in it; without effect if there is none."""
        ...

    def local(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """Yield the path of a file on this machine: the file itself, or a copy, which is removed afterwards."""
        ...


def destination(
    directory: str | os.PathLike[str],
    storage_options: Mapping[str, Option] | None = None,
    *,
    files: Files | None = None,
    use: str = USE,
    is_strict: bool = False,
) -> Destination:
    """Return the destination for a path or a URL; errors say that it is impossible to `use` it so.

    `is_strict`: nothing is read through a link, or from a pipe or device, which could end nowhere or never.
    """
    place = os.fspath(directory)
    scheme, separator, rest = place.partition("://")
    if separator and scheme not in {"file", "local"}:
        return RemoteDestination(place, storage_options or {}, use)
    return LocalDestination(
        rest if separator else place, RealFiles() if files is None else files, use, is_strict=is_strict
    )


class LocalDestination:
    """A directory that every writer mounts."""

    def __init__(
        self, directory: str | os.PathLike[str], files: Files, use: str = USE, *, is_strict: bool = False
    ) -> None:
        self._directory = Path(directory).absolute()
        self._files = files
        self._use = use
        self._is_strict = is_strict

    @property
    def name(self) -> str:
        return str(self._directory)

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        place = self._directory / attempt_name()
        with self._refusals():
            self._make(self._directory)
            self._files.make_directory(place)
        try:
            yield place
        finally:
            # A leftover directory does no harm: `remove_attempts` removes it.
            with contextlib.suppress(OSError):
                remove_tree(self._files, place)

    def publish(self, path: Path, name: str) -> None:
        target = self._directory / name
        with self._refusals():
            if target.parent != self._directory:
                self._make(target.parent)
            self._files.rename(path, target)
            self._files.sync_directory(target.parent)
            self._files.sync_directory(path.parent)  # A rename between directories is durable in both.

    def put(self, name: str, data: bytes) -> None:
        beside = self._directory / f"{attempt_name()}-{name}"
        with self._refusals():
            descriptor = self._files.open(beside, WRITE_NEW)
            try:
                self._files.pwrite(descriptor, data, 0)
                self._files.sync(descriptor)
            finally:
                self._files.close(descriptor)
            self._files.rename(beside, self._directory / name)
            self._files.sync_directory(self._directory)

    def names(self) -> list[str]:
        with self._refusals():
            try:
                self._check(self._directory, "directory")
                return [entry.name for entry in self._files.list_directory(self._directory)]
            except FileNotFoundError:
                return []

    def exists(self, name: str) -> bool:
        with self._refusals():
            try:
                self._files.stat(self._directory / name)
            except FileNotFoundError:
                return False
            return True

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[RandomAccess]:
        with self._refusals():
            path = str(self._readable(name))
            descriptor = self._files.open(path)
            try:
                yield OpenFile(self._files, descriptor, path)
            finally:
                self._files.close(descriptor)

    def remove_attempts(self) -> None:
        with self._refusals():
            for entry in self._files.list_directory(self._directory):
                if entry.name.startswith(ATTEMPT):
                    # Another driver, or the attempt's own task, was quicker.
                    with contextlib.suppress(FileNotFoundError):
                        remove_tree(self._files, self._directory / entry.name)

    def remove(self, name: str) -> None:
        with self._refusals():
            self._check(self._directory, "directory")
            remove_tree(self._files, self._directory / name)
            self._files.sync_directory(self._directory)

    @contextlib.contextmanager
    def local(self, name: str) -> Iterator[Path]:
        with self._refusals():
            path = self._readable(name)
        yield path

    def _readable(self, name: str) -> Path:
        self._check(self._directory, "directory")
        self._check(self._directory / name, "file")
        return self._directory / name

    def _check(self, path: Path, wanted: str) -> None:
        if self._is_strict and self._files.stat(path).kind != wanted:
            raise OSError(errno.EINVAL, f"it must be a plain {wanted}, and no link, pipe or device", str(path))

    def _make(self, directory: Path) -> None:
        try:
            self._files.make_directory(directory)
        except FileExistsError:
            return  # Another task may have made the directory just now.
        except FileNotFoundError:
            self._make(directory.parent)
            with contextlib.suppress(FileExistsError):
                self._files.make_directory(directory)
        self._files.sync_directory(directory.parent)

    def _refusals(self) -> contextlib.AbstractContextManager[None]:
        return refusals(self._directory, self._use)


@contextlib.contextmanager
def refusals(directory: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Convert the errors of a local file system into StorageError: its path, or the directory, and `what` failed."""
    try:
        yield
    except OSError as error:
        path = str(error.filename or directory)
        raise StorageError(
            f"{path}: cannot {what}: {error.strerror or error}", {"file": path, "errno": error.errno}
        ) from error


def attempt_name() -> str:
    """Return a name that no other attempt has, on any machine."""
    return f"{ATTEMPT}{uuid.uuid4().hex}"


class RemoteDestination:
    """A URL, accessed through fsspec.

    Files are completed on the local disk (`TMPDIR`) first: a sorted file needs its last record before its first page
    can be checked, and object stores cannot change an upload.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Option], use: str = USE) -> None:
        self.name = mask_url(url).rstrip("/")
        self._url = url
        self._use = use
        self._options = storage_options
        with self._refusals():
            self._system, root = open_url(url, storage_options)
        self._root = root.rstrip("/")
        self._whole_at_once = url.partition("://")[0] in _OBJECT_STORES

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="gossipkv-") as place:
            yield Path(place)

    def publish(self, path: Path, name: str) -> None:
        with self._refusals():
            # Object stores have no directories: s3fs would take one for the request to create a bucket.
            if self._whole_at_once:
                self._system.put_file(str(path), self._path(name))
                return
            self._system.makedirs(self._root, exist_ok=True)
            beside = self._path(f"{attempt_name()}-{name}")
            try:
                self._system.put_file(str(path), beside)
                self._rename(beside, self._path(name))
            except BaseException:
                with contextlib.suppress(OSError):
                    self._system.rm_file(beside)
                raise

    def put(self, name: str, data: bytes) -> None:
        with self.workspace() as place:
            path = place / name
            path.write_bytes(data)
            self.publish(path, name)

    def names(self) -> list[str]:
        with self._refusals():
            self._system.invalidate_cache(self._root)
            try:
                found = self._system.ls(self._root, detail=False)
            except FileNotFoundError:
                return []
            return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    def exists(self, name: str) -> bool:
        with self._refusals():
            self._system.invalidate_cache(self._root)
            return bool(self._system.exists(self._path(name)))

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[RandomAccess]:
        with self._refusals():
            yield _RemoteFile(self, name, int(self._system.size(self._path(name))))

    def read_at(self, name: str, offset: int, size_bytes: int) -> bytes:
        data: bytes = self._system.cat_file(self._path(name), start=offset, end=offset + size_bytes)
        if len(data) != size_bytes:
            raise StorageError(f"{self.name}/{name}: the file became shorter while it was read", {"file": name})
        return data

    def remove_attempts(self) -> None:
        for name in self.names():
            if name.startswith(ATTEMPT):
                with self._refusals(), contextlib.suppress(FileNotFoundError):
                    self._system.rm_file(self._path(name))

    def remove(self, name: str) -> None:
        with self._refusals(), contextlib.suppress(FileNotFoundError):
            self._system.invalidate_cache(self._root)
            self._system.rm(self._path(name), recursive=True)

    @contextlib.contextmanager
    def local(self, name: str) -> Iterator[Path]:
        with self.workspace() as workspace:
            with self._refusals():
                self._system.get_file(self._path(name), str(workspace / name))
            yield workspace / name

    def _rename(self, source: str, target: str) -> None:
        """Rename with the system's own operation; some systems refuse to replace an existing file."""
        try:
            self._system.mv(source, target)
        except OSError:
            if not self._system.exists(target):
                raise
            self._system.rm_file(target)
            self._system.mv(source, target)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Convert every error of a file system into one that names the URL and reveals no secret."""
        try:
            yield
        except GossipKVError:
            raise
        except Exception as error:  # noqa: BLE001  # Stores' packages raise unrelated classes.
            reason = scrub(" ".join(f"{error}".split()) or type(error).__name__, self._url, self._options)
            raise StorageError(
                f"{self.name}: cannot {self._use}: {reason}", {"file": self.name, "reason": reason}
            ) from None  # The package's error may reveal secrets.


class _RemoteFile:
    def __init__(self, destination: RemoteDestination, file: str, size_bytes: int) -> None:
        self.name = f"{destination.name}/{file}"
        self.size_bytes = size_bytes
        self._file = file
        self._destination = destination

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        return self._destination.read_at(self._file, offset, size_bytes)
