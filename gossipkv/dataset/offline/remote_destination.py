"""A version's files written through fsspec; see `destinations`.

Files are made whole on the local disk (`TMPDIR`) first: a sorted file needs its last record before its first page can
be checked, and object stores take no second thought.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import fsspec

from gossipkv.dataset.offline.destinations import ATTEMPT, attempt_name
from gossipkv.errors import GossipKVError, StorageError
from gossipkv.settings.masking import Option, mask_url, scrub

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gossipkv.storage.label import RandomAccess

# An upload shows under its name when it is whole, and not before.
_OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "memory"})


class RemoteDestination:
    """What a URL names."""

    def __init__(self, url: str, storage_options: Mapping[str, Option]) -> None:
        self.name = mask_url(url).rstrip("/")
        self._url = url
        self._options = storage_options
        with self._refusals():
            self._system, root = fsspec.url_to_fs(url, **storage_options)
        self._root = str(root).rstrip("/")
        self._whole_at_once = url.partition("://")[0] in _OBJECT_STORES

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="gossipkv-") as place:
            yield Path(place)

    def publish(self, path: Path, name: str) -> None:
        with self._refusals():
            if self._whole_at_once:  # And without directories: s3fs would take them for a wish for a bucket.
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
        """Bytes of one of the files."""
        data: bytes = self._system.cat_file(self._path(name), start=offset, end=offset + size_bytes)
        if len(data) != size_bytes:
            raise StorageError(f"{self.name}/{name}: it became shorter while it was read", {"file": name})
        return data

    def remove_attempts(self) -> None:
        for name in self.names():
            if name.startswith(ATTEMPT):
                with self._refusals(), contextlib.suppress(FileNotFoundError):
                    self._system.rm_file(self._path(name))

    def _rename(self, source: str, target: str) -> None:
        """By the system's own rename; some refuse to replace what is there."""
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
        """Every error of a file system as one that names the URL and tells no secret."""
        try:
            yield
        except GossipKVError:
            raise
        except Exception as error:  # noqa: BLE001  # Packages of stores raise classes of their own, of no common base.
            reason = scrub(" ".join(f"{error}".split()) or type(error).__name__, self._url, self._options)
            raise StorageError(
                f"{self.name}: cannot write a version: {reason}", {"file": self.name, "reason": reason}
            ) from None  # What the package raised may tell all.


class _RemoteFile:
    """A `RandomAccess` over a URL."""

    def __init__(self, destination: RemoteDestination, file: str, size_bytes: int) -> None:
        self.name = f"{destination.name}/{file}"
        self.size_bytes = size_bytes
        self._file = file
        self._destination = destination

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        return self._destination.read_at(self._file, offset, size_bytes)
