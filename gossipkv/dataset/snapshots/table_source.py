"""A source whose versions are the snapshots of one table.

* The name of a version is the snapshot's number and its time, such as `000000000012-20240131T123000000Z`, so that names
  are ordered as snapshots are.  Both stand in the table's log, so all nodes give a snapshot the same name and files.  A
  log that no longer has the time gives `000000000012-checkpoint`.
* The newest `MAX_SNAPSHOTS` are listed.  A snapshot never changes, so its files are looked up once.
* The files are those that the snapshot lists, and its schema is that of the version.  `formats.columns.table_rows`
  reads them by it.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, final

from gossipkv.dataset.source.listing import MAX_FILES, Listing, SourceRoot, SourceVersion
from gossipkv.dataset.source.remote import RemoteRoot, files_of
from gossipkv.errors import GossipKVError, SourceChanged, SourceError
from gossipkv.settings.masking import is_url, scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gossipkv.dataset.source.files import SourceFile, SourceFiles
    from gossipkv.environment.seam import Files
    from gossipkv.errors import Detail
    from gossipkv.settings.databases import DatabaseSettings
    from gossipkv.settings.masking import Option

MAX_SNAPSHOTS: Final = 100  # Those of some hours where a job writes every few minutes.
MAX_REASON_CHARACTERS: Final = 1_000
_CLASSES: Final = {"delta": "DeltaTable", "iceberg": "IcebergTable"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a table; `number` grows with each."""

    number: int
    time_ms: int | None  # None: the log of the table has it no longer.
    id: int

    @property
    def name(self) -> str:
        """Return the name of its version."""
        if self.time_ms is None:
            return f"{self.number:012}-checkpoint"
        time = _EPOCH + timedelta(milliseconds=self.time_ms)
        return f"{self.number:012}-{time:%Y%m%dT%H%M%S}{self.time_ms % 1000:03}Z"


class SnapshotTable(Protocol):
    """A table of some kind; its methods may raise any exception, which `TableSource` converts."""

    place: TablePlace  # It may change when snapshots are listed.

    def snapshots(self) -> Sequence[Snapshot]:
        """Return the newest `MAX_SNAPSHOTS` snapshots."""

    def read(self, snapshot: Snapshot) -> tuple[str, Sequence[SourceFile]]:
        """Return the schema of a snapshot, see `FileReading`, and its data files."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The directory of a table, and how it is read."""

    root: str
    files: SourceFiles
    remote: RemoteRoot | None
    local: Files
    options_for: Callable[[str], Mapping[str, Option]] = field(repr=False)  # By location.
    name: str = ""  # The name of a metadata file in the directory, or of the table in the catalog.
    catalog: Mapping[str, Option] | None = field(default=None, repr=False)

    def moved(self, location: str) -> TablePlace:
        """Return the place at another path or URL."""
        location = re.sub(r"^file:(//)?(?=/)", "", location)
        remote = RemoteRoot(location, dict(self.options_for(location))) if is_url(location) else None
        if remote == self.remote and remote is not None:
            return self
        root = location.rstrip("/") if remote is None else remote.name
        return replace(self, root=root, remote=remote, files=files_of(remote, self.local))

    def inner(self, name: str, role: str) -> str:
        """Return the path of a file that a table names.

        Raises:
            SourceError: the name leads out of the table's directory.
        """
        if not name or name.startswith(("/", "file:")) or "://" in name or ".." in name.split("/"):
            raise SourceError(
                f"{self.root}: {role} {name!r} is not below the table's directory, as in a shallow clone; write a deep "
                "clone",
                {"file": name},
            )
        return f"{self.root}/{name}"


@final
class TableSource(SourceRoot):
    """The source of one database."""

    def __init__(self, kind: str, place: TablePlace) -> None:
        super().__init__(place.root, place.files, remote=place.remote)
        self._kind = kind
        self._place = place
        self._table: SnapshotTable | None = None
        self._snapshots: dict[str, Snapshot] = {}
        self._known: dict[str, SourceVersion | tuple[str, Mapping[str, Detail]]] = {}

    def place(self, *_names: str) -> str:
        """Return the place of the table, where all its versions are."""
        return self.root

    def versions(self, database: str) -> Listing:
        """List the snapshots, oldest first.  Raises SourceError."""
        del database
        with self._refusing():
            table = self._opened()
            self._snapshots = {snapshot.name: snapshot for snapshot in table.snapshots()}
            self.root, self.remote = table.place.root, table.place.remote
        self._known = {name: found for name, found in self._known.items() if name in self._snapshots}
        return Listing(tuple(sorted(self._snapshots)), ())

    def version(self, database: str, name: str) -> SourceVersion:
        """List the files of a snapshot.

        Raises:
            SourceError: the table has no such snapshot any more, or it cannot be read.
        """
        if name not in self._known:
            try:
                with self._refusing():
                    self._known[name] = self._read(database, name)
            except SourceError as error:
                if isinstance(error, SourceChanged) or error.__cause__ is not None or name not in self._snapshots:
                    raise
                self._known[name] = (error.message, error.details)  # The refusal of a snapshot does not change.
        found = self._known[name]
        if not isinstance(found, SourceVersion):
            message, details = found
            raise SourceError(message, dict(details))
        return found

    def _read(self, database: str, name: str) -> SourceVersion:
        if name not in self._snapshots:
            raise SourceError(f"{self.root}: the table has no snapshot {name} any more", {"file": self.root})
        schema, files = self._opened().read(self._snapshots[name])
        if len(files) > MAX_FILES:
            raise SourceError(
                f"{self.root}: the snapshot has {len(files):,} data files; the limit is {MAX_FILES:,}; "
                "compact the table (OPTIMIZE, rewrite_data_files)",
                {"file": self.root, "limit": MAX_FILES},
            )
        ordered = tuple(sorted(files, key=lambda file: os.fsencode(file.name)))
        return SourceVersion(database, name, ordered, schema=schema)

    def _opened(self) -> SnapshotTable:
        """Import the module of the table at the first look: with pyarrow it takes 60 MB or more."""
        if self._table is None:
            try:
                module = import_module(f"gossipkv.dataset.snapshots.{self._kind}")
                import_module("pyroaring")  # A build needs it where rows are deleted.
            except ImportError as error:
                raise SourceError(
                    f"{self.root}: {self._kind} tables need {error.name}, which is not installed; run `pip install "
                    f"'gossipkv[{self._kind}]'`",
                    {"file": self.root},
                ) from error
            self._table = getattr(module, _CLASSES[self._kind])(self._place)
        assert self._table is not None
        return self._table

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Convert all errors of reading a table into one kind, without secrets."""
        try:
            yield
        except SourceError:
            raise
        except Exception as error:
            reason = error.message if isinstance(error, GossipKVError) else f"{type(error).__name__}: {error}"
            place = self._place if self._table is None else self._table.place
            secrets = {**(place.remote.options if place.remote else {}), **(place.catalog or {})}
            shown = scrub(" ".join(reason.split()), "", secrets)
            raise SourceError(f"{self.root}: the table cannot be read: {shown[:MAX_REASON_CHARACTERS]}",
                              {"file": self.root}) from error  # fmt: skip


def open_table(settings: DatabaseSettings, root: SourceRoot | None, database: str, files: Files,
               options_for: Callable[[str], Mapping[str, Option]]) -> TableSource | None:  # fmt: skip
    """Return the source of a database that is a table: at its own place, else below the root."""
    table, catalog = settings.table, settings.catalog
    if catalog is not None:
        place = TablePlace(f"the table {table} in its catalog", files, None, files, options_for, table or "", catalog)
    elif table is not None:
        above, _, name = table.rpartition("/")
        is_file = ".metadata.json" in name
        place = TablePlace("", files, None, files, options_for, name if is_file else "")
        place = place.moved(above.rpartition("/")[0] if is_file else table)
    elif root is not None:
        place = TablePlace(root.place(database), files_of(root.remote, files), root.remote, files, options_for)
    else:
        return None
    return TableSource(settings.format or "", place)
