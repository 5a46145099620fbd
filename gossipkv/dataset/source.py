"""Where datasets come from: `<root>/<database>/<version>/<files>`, listed and read with suspicion.

* Names of databases and versions match `[-_a-zA-Z0-9]+` and have at most 200 characters.  Names that begin with `_` or
  `.` (`_temporary`, `_SUCCESS`, `.crc` files) are not data, on any level.  Other names are ignored and reported.
* A version is complete when it has a data file and, if that is required, a file `_SUCCESS`.
* Links are followed while they stay below the root.  A link out of it, a socket, a fifo, a device or a directory
  among the data files is an error of that version: skipping it in silence would lose records.

The source is somebody else's and may change, vanish or stall at any moment: everything here is a plain function that
a worker thread runs, and every refusal is an error that names the path, after which what is served goes on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from gossipkv.database_settings import is_name
from gossipkv.dataset.identity import digest
from gossipkv.environment import READ
from gossipkv.errors import SourceChanged, SourceError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.environment import Entry, Files

# Each file of a version is one mapping; Linux allows a process 65,530 (vm.max_map_count), and during an upgrade a
# database has three versions at most: retiring, active, and the one just built.
MAX_FILES = 16_384

# Small enough that the lines of one chunk, as objects, stay below 10 MiB however short they are.
CHUNK_BYTES = 256 << 10

SUCCESS_FILE = "_SUCCESS"

# Never waits for a fifo's writer, never follows a link that was put there after the look.
_READ_SOURCE = READ | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A data file as it was listed."""

    name: str
    path: str  # Without links.
    size_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """A version as it was listed; `files` are sorted by name as bytes, the order in which they are read."""

    database: str
    name: str
    files: tuple[SourceFile, ...]
    waiting_for: str | None = None  # Why it is not complete.

    @property
    def size_bytes(self) -> int:
        """What a build has to read."""
        return sum(file.size_bytes for file in self.files)

    @property
    def digest(self) -> str:
        """The digest of the identity."""
        return digest((file.name, file.size_bytes) for file in self.files)

    @property
    def fingerprint(self) -> str:
        """Changes whenever a file was touched; means nothing on another machine."""
        times = digest((file.name, file.modified_ns) for file in self.files)
        return f"{self.digest} {times} {self.waiting_for}"


@dataclass(frozen=True, slots=True)
class Listing:
    """The names found, sorted, and a line about each entry that was ignored."""

    names: tuple[str, ...]
    ignored: tuple[str, ...]


class Source:
    """A source root in a file system."""

    def __init__(self, root: str | os.PathLike[str], files: Files, *, require_success_file: bool = False) -> None:
        self.root = PurePath(root)
        self._files = files
        self._require_success_file = require_success_file

    def databases(self) -> Listing:
        """The databases.

        Raises:
            SourceError: the root cannot be read.
        """
        return self._directories(self.root, "a database")

    def versions(self, database: str) -> Listing:
        """The names of the versions of a database, oldest first.

        Raises:
            SourceError: the directory cannot be read.
        """
        return self._directories(self.root / database, "a version")

    def version(self, database: str, name: str) -> SourceVersion:
        """The files of a version.

        Raises:
            SourceError: the directory cannot be read, or holds what cannot be data.
        """
        directory = self.root / database / name
        found = []
        complete = not self._require_success_file
        for entry in self._list(directory):
            if entry.name == SUCCESS_FILE:
                complete = True
            if not entry.name.startswith(("_", ".")):
                found.append(self._data_file(directory, entry))
            if len(found) > MAX_FILES:
                raise SourceError(
                    f"{directory}: more than {MAX_FILES:,} data files; each becomes a mapped partition, and a process "
                    "may map about 65,000: write fewer, larger files",
                    {"file": str(directory), "limit": MAX_FILES},
                )
        waiting_for = None if complete else f"a file {SUCCESS_FILE}"
        if not found:
            waiting_for = "a data file"
        return SourceVersion(database, name, tuple(found), waiting_for)

    def _directories(self, path: PurePath, what: str) -> Listing:
        names = []
        ignored = []
        for entry in self._list(path):
            if entry.name.startswith(("_", ".")):
                continue
            place = os.fsencode(path / entry.name).decode("utf-8", "backslashreplace")
            if not is_name(entry.name):
                ignored.append(f"{place}: not the name of {what}: those match [-_a-zA-Z0-9]+")
                continue
            kind = entry.kind
            if kind == "link":
                try:
                    kind = self._follow(path / entry.name).kind
                except SourceError as error:
                    ignored.append(str(error))
                    continue
            if kind == "directory":
                names.append(entry.name)
            else:
                ignored.append(f"{place}: not {what}: it is not a directory")
        return Listing(tuple(sorted(names)), tuple(ignored))

    def _list(self, path: PurePath) -> list[Entry]:
        try:
            return self._files.list_directory(path)
        except OSError as error:
            raise SourceError(f"{path}: cannot be read: {error.strerror}", {"file": str(path)}) from error

    def _data_file(self, directory: PurePath, entry: Entry) -> SourceFile:
        path = directory / entry.name
        resolved = str(path)
        if entry.kind == "link":
            entry, resolved = self._follow(path), self._files.resolve(path)
        if entry.kind != "file":
            raise SourceError(
                f"{path}: {_WHAT.get(entry.kind, entry.kind)} among the data files; only plain files are read, and "
                "names that begin with _ or . are passed over",
                {"file": str(path)},
            )
        return SourceFile(path.name, resolved, entry.size_bytes, entry.modified_ns)

    def _follow(self, path: PurePath) -> Entry:
        """What a link leads to.

        Raises:
            SourceError: out of the root, or nowhere.
        """
        try:
            target = PurePath(self._files.resolve(path))
            if not target.is_relative_to(self._files.resolve(self.root)):
                raise SourceError(f"{path}: a link that leads out of the source, to {target}", {"file": str(path)})
            return self._files.stat(target)
        except OSError as error:
            raise SourceError(f"{path}: a link that leads nowhere: {error.strerror}", {"file": str(path)}) from error


_WHAT = {"directory": "a directory", "other": "a socket, fifo or device"}


def chunks(files: Files, file: SourceFile) -> Iterator[bytes]:
    """The bytes of a source file.

    Raises:
        SourceChanged: the file is not what it was when it was listed.
        StorageError: the system refused.
    """
    try:
        _check_unchanged(files, file)
        descriptor = files.open(file.path, _READ_SOURCE)
        try:
            offset = 0
            while offset < file.size_bytes:
                chunk = files.pread(descriptor, min(CHUNK_BYTES, file.size_bytes - offset), offset)
                if not chunk:
                    raise _changed(file, f"it ends at byte {offset:,}")
                offset += len(chunk)
                yield chunk
        finally:
            files.close(descriptor)
        _check_unchanged(files, file)
    except FileNotFoundError as error:
        raise _changed(file, "it is gone") from error
    except OSError as error:
        raise StorageError(f"{file.path}: cannot be read: {error.strerror}", {"file": file.path}) from error


def _check_unchanged(files: Files, file: SourceFile) -> None:
    entry = files.stat(file.path)
    if entry.kind != "file":
        raise _changed(file, "it is no plain file any more")
    if entry.size_bytes != file.size_bytes:
        raise _changed(file, f"it has {entry.size_bytes:,} bytes")
    if entry.modified_ns != file.modified_ns:
        raise _changed(file, "its time of modification is another")


def _changed(file: SourceFile, how: str) -> SourceChanged:
    return SourceChanged(
        f"{file.path}: changed while the version was read: it was listed with {file.size_bytes:,} bytes, and now "
        f"{how}; write a version under another name and rename it when it is whole, or require {SUCCESS_FILE}",
        {"file": file.path, "expected": file.size_bytes},
    )
