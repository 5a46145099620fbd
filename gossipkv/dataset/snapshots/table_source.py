"""A source whose versions are the snapshots of one table.

* The name of a version is the snapshot's number and its time, such as `000000000012-20240131T123000000Z`, so that names
  are ordered as snapshots are.  Both stand in the table's log, so all nodes give a snapshot the same name and files.
* The newest `MAX_SNAPSHOTS` are listed.  A snapshot never changes, so its files are looked up once.
* The files are those that the snapshot lists, and its schema is that of the version.  `formats.columns.table_rows`
  reads them by it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, final

from gossipkv.dataset.source.listing import MAX_FILES, Listing, SourceRoot, SourceVersion
from gossipkv.dataset.source.remote import RemoteRoot, files_of
from gossipkv.errors import GossipKVError, SourceError
from gossipkv.settings.masking import is_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.dataset.source.files import SourceFile, SourceFiles
    from gossipkv.environment.seam import Files
    from gossipkv.settings.databases import DatabaseSettings
    from gossipkv.settings.masking import Option

MAX_SNAPSHOTS: Final = 100  # Those of some hours where a job writes every few minutes.
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a table; `number` grows with each."""

    number: int
    time_ms: int
    id: int

    @property
    def name(self) -> str:
        """Return the name of its version."""
        time = _EPOCH + timedelta(milliseconds=self.time_ms)
        return f"{self.number:012}-{time:%Y%m%dT%H%M%S}{self.time_ms % 1000:03}Z"


class Table(Protocol):
    """A table of some kind.  All methods raise SourceError; one that is caused by `OSError` may pass."""

    def snapshots(self) -> Sequence[Snapshot]:
        """Return the newest `MAX_SNAPSHOTS` snapshots, in any order."""

    def read(self, snapshot: Snapshot) -> tuple[str, Sequence[SourceFile]]:
        """Return the schema of a snapshot, see `FileReading`, and its data files."""


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of a table."""

    root: str
    files: SourceFiles
    remote: RemoteRoot | None

    @classmethod
    def of(cls, path: str, files: Files, options: Mapping[str, Option]) -> Place:
        remote = RemoteRoot(path, dict(options)) if is_url(path) else None
        return cls(path.rstrip("/") if remote is None else remote.name, files_of(remote, files), remote)

    def inner(self, name: str, whose: str) -> str:
        """Return the path of a file that a table names.

        Raises:
            SourceError: the name leads out of the table's directory.
        """
        if not name or name.startswith(("/", "file:")) or "://" in name or ".." in name.split("/"):
            raise SourceError(
                f"{self.root}: {whose} {name!r} is not below the table's directory, as in a shallow clone; such tables "
                "are not read: write a deep clone",
                {"file": name},
            )
        return f"{self.root}/{name}"


@final
class TableSource(SourceRoot):
    """The source of one database."""

    def __init__(self, place: Place, table: Table) -> None:
        super().__init__(place.root, place.files, remote=place.remote)
        self._table = table
        self._snapshots: dict[str, Snapshot] = {}
        self._known: dict[str, SourceVersion | SourceError] = {}

    def place(self, *_names: str) -> str:
        return self.root

    def versions(self, database: str) -> Listing:
        """List the snapshots, oldest first.  Raises SourceError."""
        del database
        self._snapshots = {snapshot.name: snapshot for snapshot in self._table.snapshots()}
        self._known = {name: found for name, found in self._known.items() if name in self._snapshots}
        return Listing(tuple(sorted(self._snapshots)), ())

    def version(self, database: str, name: str) -> SourceVersion:
        """List the files of a snapshot.

        Raises:
            SourceError: the table has no such snapshot any more, or it cannot be read.
        """
        if name not in self._known:
            try:
                self._known[name] = self._read(database, name)
            except SourceError as error:
                if isinstance(error.__cause__, OSError | GossipKVError):
                    raise
                self._known[name] = error
        found = self._known[name]
        if isinstance(found, SourceError):
            raise SourceError(found.message, found.details)
        return found

    def _read(self, database: str, name: str) -> SourceVersion:
        if name not in self._snapshots:
            raise SourceError(f"{self.root}: the table has no snapshot {name} any more", {"file": self.root})
        schema, files = self._table.read(self._snapshots[name])
        if len(files) > MAX_FILES:
            raise SourceError(
                f"{self.root}: {len(files):,} data files, and a version has at most {MAX_FILES:,}: compact the table "
                "(OPTIMIZE, rewrite_data_files)",
                {"file": self.root, "limit": MAX_FILES},
            )
        ordered = tuple(sorted(files, key=lambda file: os.fsencode(file.name)))
        return SourceVersion(database, name, ordered, None if ordered else "a data file", schema=schema)


def open_table(settings: DatabaseSettings, root: SourceRoot | None, database: str, files: Files,
               options: Mapping[str, Option]) -> SourceRoot | None:  # fmt: skip
    """Return the source of a database that is a table: at its own place, else below the root.

    Raises:
        SourceError: a package that reads such tables is not installed.
    """
    if settings.table is not None:
        place = Place.of(settings.table, files, options)
    elif root is not None:
        place = Place(root.place(database), files_of(root.remote, files), root.remote)
    else:
        return None
    return TableSource(place, _Late(settings.format or "", place))


@final
class _Late:
    """A table whose module, with pyarrow, is imported at the first look: it takes 60 MB."""

    def __init__(self, kind: str, place: Place) -> None:
        self._kind = kind
        self._place = place
        self._table: Table | None = None

    def snapshots(self) -> Sequence[Snapshot]:
        return self._opened().snapshots()

    def read(self, snapshot: Snapshot) -> tuple[str, Sequence[SourceFile]]:
        return self._opened().read(snapshot)

    def _opened(self) -> Table:
        if self._table is None:
            try:
                module = import_module(f"gossipkv.dataset.snapshots.{self._kind}")
            except ImportError as error:
                raise SourceError(
                    f"{self._place.root}: {error.name} is not installed, which reads {self._kind} tables: pip install "
                    f"'gossipkv[{self._kind}]'",
                    {"file": self._place.root},
                ) from error
            self._table = module.Table(self._place)
        assert self._table is not None
        return self._table
