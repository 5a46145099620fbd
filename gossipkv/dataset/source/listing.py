"""Listing of a source: `<root>/<database>/<version>/<files>`, read with suspicion.

* Names of databases and versions match `[-_a-zA-Z0-9]+` and have at most 200 characters.  Names that begin with `_` or
  `.` (`_temporary`, `_SUCCESS`, `.crc` files) are not data, on any level.  Other names are ignored and reported.
* A version is complete if it has a data file and, where required, a file `_SUCCESS`.  `.NAME.crc` is Hadoop's checksum
  file of NAME.
* Names that end with `$folder$` are markers of EMR, and no data either.
* Delta, Hudi and Iceberg tables are refused by name: their files also hold rows that were overwritten or deleted.
* Files in directories called `column=value`, as Hive and Spark make them, are data with these columns.
* Links are followed below the root.  A link out of the root, a socket, a fifo, a device or a directory among the data
  files is an error of that version.  Skipping it silently would lose records.

The root is a path, or an fsspec URL (`remote`).  The source may change, vanish or stall at any moment: these plain
functions run in worker threads, and every refusal is an error that names the path.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from gossipkv.dataset.source.files import SourceFile, is_partition, newest_ms
from gossipkv.dataset.source.hadoop_checksums import checksum_name
from gossipkv.dataset.source.remote import RemoteRoot, files_of
from gossipkv.errors import SourceError
from gossipkv.placement.identity import digest
from gossipkv.settings.databases import NAMES, TABLE_FORMATS, is_name
from gossipkv.settings.masking import is_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gossipkv.dataset.source.files import SourceFiles
    from gossipkv.environment.seam import FileEntry, Files
    from gossipkv.settings.masking import Option

# Each file of a version is one mapping; Linux allows a process 65,530 (vm.max_map_count).  During an upgrade a database
# has at most three versions: retiring, active, and the one just built.
MAX_FILES = 16_384

# Directories `column=value` within each other; writers make some few.
MAX_COLUMNS = 16

# The most ignored entries that are reported.
MAX_IGNORED = 1_000

SUCCESS_FILE = "_SUCCESS"
# The job's declaration about its files (`declared_partitions`).
DECLARED_FILE = "_PARTITIONS.json"


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """A version as it was listed; `files` are sorted by name as bytes, the order in which they are read."""

    database: str
    name: str
    files: tuple[SourceFile, ...]
    waiting_for: str | None = None  # The reason why the version is not complete.
    declaration: SourceFile | None = None  # The job's declaration about its files, if there is one.
    schema: str = ""  # The schema of a table's snapshot, see `FileReading`.

    @property
    def size_bytes(self) -> int:
        """Return the bytes that a build has to read."""
        return sum(file.size_bytes for file in self.files)

    @property
    def partitions(self) -> int:
        """Return the number of partitions: one for each file, and one without records for an empty snapshot."""
        return len(self.files) or int(self.waiting_for is None)

    @property
    def newest_ms(self) -> int:
        return newest_ms(self.files)

    @property
    def digest(self) -> str:
        return digest((file.name, file.size_bytes) for file in self.files)

    @property
    def fingerprint(self) -> str:
        """Return a text that changes whenever a file was modified; it means nothing on another machine."""
        listed = [(file.name, file) for file in self.files]
        listed += [(f"{file.name} crc {file.checksums.size_bytes}", file.checksums)
                   for file in self.files if file.checksums is not None]  # fmt: skip
        if self.declaration is not None:
            listed.append((f"{self.declaration.name} {self.declaration.size_bytes}", self.declaration))
        times = digest((f"{name} {file.tag}", file.modified_ns) for name, file in listed)
        return f"{self.digest} {times} {self.waiting_for}"


@dataclass(frozen=True, slots=True)
class Listing:
    """The names found, sorted, and a line about each entry that was ignored."""

    names: tuple[str, ...]
    ignored: tuple[str, ...]

    def trouble(self, database: str, active: str | None) -> str | None:
        """Return why the source gives no version, or none as new as the active one (None: any will do)."""
        newest = self.names[-1] if self.names else None
        if newest is None:
            return self.ignored[0] if self.ignored else None
        if active is None or active <= newest:
            return None
        return (
            f"the source went back, or lags: its newest version is {newest}, and the active version {active} is not "
            "there; if it was never, give all nodes the same source; nodes never go back by themselves: run "
            f"`gossipkv rollback {database} {newest}`, or publish a newer version"
        )


def is_hidden(name: str) -> bool:
    """Return True if a name says that its entry is no data."""
    return name.startswith(("_", ".")) or name.endswith("$folder$")


class SourceRoot:
    """A source root in a file system."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        files: SourceFiles,
        *,
        require_success_file: bool = False,
        remote: RemoteRoot | None = None,
    ) -> None:
        self.root = os.fspath(root)
        self.remote = remote
        self._files = files
        self._require_success_file = require_success_file

    @classmethod
    def open(
        cls, root: str, files: Files, options: Mapping[str, Option], *, require_success_file: bool = False
    ) -> SourceRoot:
        """Return the source at a path or URL; a store is first reached when it is listed."""
        remote = RemoteRoot(root, dict(options)) if is_url(root) else None
        name = root if remote is None else remote.name
        return cls(name, files_of(remote, files), require_success_file=require_success_file, remote=remote)

    def place(self, *names: str) -> str:
        """Return the path of a database, a version or a file."""
        return "/".join((self.root.rstrip("/"), *names)) if names else self.root

    def databases(self) -> Listing:
        """List the databases.

        Raises:
            SourceError: the root cannot be read.
        """
        return self._directories(self.root, "a database")

    def versions(self, database: str) -> Listing:
        """List the versions of a database, oldest first.

        Raises:
            SourceError: the directory cannot be read.
        """
        return self._directories(self.place(database), "a version")

    def version(self, database: str, name: str) -> SourceVersion:
        """List the files of a version.

        Raises:
            SourceError: the directory cannot be read, or holds entries that cannot be data.
        """
        return self.listed(self.place(database, name), database, name)

    def listed(self, directory: str, database: str, name: str) -> SourceVersion:
        """List the files of a directory as this version.  Raises as `version`."""
        entries = {entry.name: entry for entry in self._list(directory)}
        found = sorted(self._data_files(directory, "", entries), key=lambda file: os.fsencode(file.name))
        waiting_for = None
        if self._require_success_file and SUCCESS_FILE not in entries:
            waiting_for = f"a file {SUCCESS_FILE}"
        if not found:
            waiting_for = "a data file"
        declared = entries.get(DECLARED_FILE)
        declaration = (
            None
            if declared is None
            else self._data_file(directory, declared, entries.get(checksum_name(declared.name)))
        )
        return SourceVersion(database, name, tuple(found), waiting_for, declaration)

    def _data_files(self, directory: str, above: str, entries: Mapping[str, FileEntry]) -> Iterator[SourceFile]:
        """Yield the data files of a directory, and of those in it that are called `column=value`."""
        _refuse_tables(directory, entries.values())
        names = [name for name in entries if not is_hidden(name)]
        inner = [name for name in names if entries[name].kind == "directory" and is_partition(name)]
        if above.count("/") + 1 > MAX_COLUMNS and inner:
            raise SourceError(
                f"{directory}: the data files are more than {MAX_COLUMNS} directories deep", {"file": directory}
            )
        count = 0
        for name in names:
            if name in inner:
                place = f"{directory}/{name}"
                within = {entry.name: entry for entry in self._list(place)}
                found = self._data_files(place, f"{above}{name}/", within)
            else:
                file = self._data_file(directory, entries[name], entries.get(checksum_name(name)))
                found = iter([replace(file, name=above + name)])
            for file in found:
                count += 1
                if count > MAX_FILES:
                    raise SourceError(
                        f"{directory}: the version has more than {MAX_FILES:,} data files, and a process can map about "
                        "65,000; write fewer, larger files",
                        {"file": directory, "limit": MAX_FILES},
                    )
                yield file

    def _directories(self, path: str, noun: str) -> Listing:
        names = []
        ignored: list[str] = []
        entries = self._list(path)
        _refuse_tables(path, entries)
        for entry in entries:
            if is_hidden(entry.name):
                continue
            inner = f"{path.rstrip('/')}/{entry.name}"
            place = os.fsencode(inner).decode("utf-8", "backslashreplace")
            if not is_name(entry.name):
                ignored.append(f"{place}: this is no valid name of {noun}: {NAMES}")
                continue
            kind = entry.kind
            if kind == "link":
                try:
                    kind = self._follow(inner).kind
                except SourceError as error:
                    ignored.append(str(error))
                    continue
            if kind == "directory":
                names.append(entry.name)
            else:
                ignored.append(f"{place}: {noun} must be a directory")
        return Listing(tuple(sorted(names)), tuple(ignored[:MAX_IGNORED]))

    def _list(self, path: str) -> list[FileEntry]:
        try:
            return self._files.list_directory(path)
        except OSError as error:
            raise SourceError(f"{path}: the directory cannot be read: {error.strerror}", {"file": path}) from error

    def _data_file(self, directory: str, entry: FileEntry, checksums: FileEntry | None = None) -> SourceFile:
        name = entry.name
        path = resolved = f"{directory}/{name}"
        if entry.kind == "link":
            entry, resolved = self._follow(path), self._files.resolve(path)
        if entry.kind != "file":
            raise SourceError(
                f"{path}: {_KINDS.get(entry.kind, entry.kind)} is among the data files, which must be plain files; "
                "rename it with _ or . at the beginning, so that it is ignored",
                {"file": path},
            )
        beside = None if checksums is None else self._data_file(directory, checksums)
        return SourceFile(name, resolved, entry.size_bytes, entry.modified_ns, entry.tag, beside)

    def _follow(self, path: str) -> FileEntry:
        """Return the target of a link.

        Raises:
            SourceError: the link leads out of the root, or nowhere.
        """
        try:
            target = PurePath(self._files.resolve(path))
            if not target.is_relative_to(self._files.resolve(self.root)):
                raise SourceError(f"{path}: the link leads out of the source, to {target}", {"file": path})
            return self._files.stat(target)
        except OSError as error:
            raise SourceError(
                f"{path}: the target of the link cannot be read: {error.strerror}", {"file": path}
            ) from error


def _refuse_tables(directory: str, entries: Iterable[FileEntry]) -> None:
    directories = {entry.name for entry in entries if entry.kind != "file"}
    table = next((kind for kind, names in _TABLES.items() if names <= directories), None)
    if table is not None:
        kind = table.rpartition(" ")[2].lower()
        advice = "write the rows of one snapshot into a directory of plain files"
        if kind in TABLE_FORMATS:
            advice = f'set format = "{kind}" and table = "{directory}" in the settings of a database, or {advice}'
        raise SourceError(
            f"{directory}: this is {table} table, and its files also hold deleted or replaced rows; {advice}",
            {"file": directory},
        )


_TABLES = {
    "a Delta": {"_delta_log"},
    "a Hudi": {".hoodie"},
    "an Iceberg": {"metadata", "data"},
}  # fmt: skip
_KINDS = {"directory": "a directory", "other": "a socket, fifo or device"}
