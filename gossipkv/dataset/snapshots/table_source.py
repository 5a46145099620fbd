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
import json
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol, final

from gossipkv.dataset.source.files import SourceFile
from gossipkv.dataset.source.listing import Listing, SourceRoot, SourceVersion
from gossipkv.dataset.source.remote import RemoteRoot, files_of
from gossipkv.errors import SourceChanged, SourceError
from gossipkv.processes.asked import AskedProcess, AskedProcessError
from gossipkv.settings.masking import is_url
from gossipkv.settings.quantity import SIZE, show
from gossipkv.settings.stores import CLOUDS, Stores
from gossipkv.storage.typed import typed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.dataset.source.files import SourceFiles
    from gossipkv.environment.seam import FileEntry, Files
    from gossipkv.settings.databases import DatabaseSettings
    from gossipkv.settings.masking import Option

MEMORY_BYTES: Final = 1 << 30  # A look at a table may take so much.
# Arrow's own allocator would reserve more than it uses, and the limit would count it.
VARIABLES: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
MAX_SNAPSHOTS: Final = 100  # Those of some hours where a job writes every few minutes.
LOOK_S: Final = 300.0  # The time of one answer; a log in a slow store takes a minute.
_LOGS: Final = {"delta": "_delta_log", "iceberg": "metadata"}
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
    """A table of some kind; its methods may raise any exception, which `look` converts."""

    place: TablePlace  # It may change when snapshots are listed.

    def snapshots(self) -> Sequence[Snapshot]:
        """Return the newest `MAX_SNAPSHOTS` snapshots."""

    def read(self, snapshot: Snapshot) -> tuple[str, Sequence[SourceFile]]:
        """Return the schema of a snapshot, see `FileReading`, and its data files."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options of stores for the places of a table."""

    own: Mapping[str, Option] | None
    stores: Stores
    is_told: bool = False  # The place is told by a catalog, and so chosen by the table's author.

    def at(self, location: str) -> Mapping[str, Option]:
        """Return the options for a URL; no secret goes to a host that an author names."""
        if self.own is not None and (not self.is_told or location.startswith(CLOUDS)):
            return self.own
        return self.stores.options(location) or {}


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The directory of a table, and how it is read."""

    root: str
    files: SourceFiles
    remote: RemoteRoot | None
    local: Files
    options: TableOptions = field(repr=False)
    name: str = ""  # The name of a metadata file in the directory, or of the table in the catalog.
    catalog: Mapping[str, Option] | None = field(default=None, repr=False)
    within: str = ""  # The directory that links may not leave.

    def moved(self, location: str) -> TablePlace:
        """Return the place at another path or URL."""
        location = re.sub(r"^file:(//)?(?=/)", "", location)
        remote = RemoteRoot(location, dict(self.options.at(location))) if is_url(location) else None
        if remote == self.remote and remote is not None:
            return self
        root = location.rstrip("/") if remote is None else remote.name
        return replace(self, root=root, remote=remote, files=files_of(remote, self.local))

    def inner(self, name: str, role: str) -> str:
        """Return the path of a file that a table names.

        Raises:
            SourceError: the name leads out of the table's directory.
            OSError: it is a link that leads out of the source, or no plain file.
        """
        if not name or name.startswith(("/", "file:")) or "://" in name or ".." in name.split("/"):
            raise SourceError(
                f"{self.root}: {role} {name!r} is not below the table's directory, as in a shallow clone; write a deep "
                "clone",
                {"file": name},
            )
        path = f"{self.root}/{name}"
        with contextlib.suppress(FileNotFoundError):  # A build notices it, and the others are still of use.
            return path if self.remote is not None else self.files.resolve(path)
        return path


@final
class TableSource(SourceRoot):
    """The source of one database; a process of its own reads the log and the metadata (`look`).

    The process stays while the table changes: a look that finds nothing new in the directory of the log ends it.
    """

    def __init__(self, kind: str, place: TablePlace) -> None:
        super().__init__(place.root, place.files, remote=place.remote)
        self._kind, self._place = kind, place
        self._process: AskedProcess | None = None
        self._signs: Sequence[FileEntry] | None = None
        self._names: tuple[str, ...] = ()
        self._known: dict[str, SourceVersion | SourceError] = {}  # By name; a refusal that stays, too.

    def place(self, *_names: str) -> str:
        """Return the place of the table, where all its versions are."""
        return self.root

    def versions(self, database: str) -> Listing:
        """List the snapshots, oldest first.  Raises SourceError."""
        del database
        signs = self._look()
        if signs is None or signs != self._signs:
            match self._ask("versions"):
                case {"names": list(names), "location": str(location)}:
                    self._names = tuple(map(str, names))
                    if self._place.catalog is not None:
                        place = self._place.moved(location)
                        self.root, self.remote = place.root, place.remote
                case answer:
                    raise self._unexpected(answer)
            self._known = {name: found for name, found in self._known.items() if name in self._names}
            self._signs = signs
        elif self._process is not None:
            self._end()
        return Listing(self._names, ())

    def version(self, database: str, name: str) -> SourceVersion:
        """List the files of a snapshot.

        Raises:
            SourceError: the table has no such snapshot any more, or it cannot be read.
        """
        if name not in self._known:
            match self._ask("version", name):
                case {"error": [_, str(message), dict(details)]}:
                    self._known[name] = SourceError(message, details)
                case {"schema": str(schema), "files": list(files)}:
                    found = tuple(typed(SourceFile, file) for file in files)
                    self._known[name] = SourceVersion(database, name, found, schema=schema)
                case answer:
                    raise self._unexpected(answer)
        known = self._known[name]
        if isinstance(known, SourceError):
            raise SourceError(known.message, dict(known.details))
        return known

    def _look(self) -> Sequence[FileEntry] | None:
        """Return the entries that change with the table; None: only the catalog knows."""
        place = self._place
        with contextlib.suppress(OSError):  # The process says why.
            if place.catalog is None and place.name:
                return [place.files.stat(f"{place.root}/{_LOGS[self._kind]}/{place.name}")]
            if place.catalog is None:
                return place.files.list_directory(f"{place.root}/{_LOGS[self._kind]}")
        return None

    def _ask(self, *request: str) -> dict[str, object]:
        try:
            if self._process is None:
                place = self._place
                order = (self._kind, place.root, place.remote, place.options, place.name, place.catalog, place.within)
                self._process = AskedProcess("gossipkv.dataset.snapshots.look", order, VARIABLES)
            answer = self._process.ask(json.dumps(request).encode(), LOOK_S)
        except (OSError, AskedProcessError) as error:
            self._end()
            limits = f"a table's metadata may take {LOOK_S:.0f} s and {show(MEMORY_BYTES, SIZE)} of memory"
            words = f"{self.root}: the table cannot be read: {error} ({limits})"
            raise SourceError(words, {"file": self.root}) from error
        match answer:
            case {"error": [str(kind), str(message), dict(details)], "is_lasting": False}:
                raise (SourceChanged if kind == "SourceChanged" else SourceError)(message, details)
        return answer

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def _unexpected(self, answer: object) -> SourceError:
        return SourceError(f"{self.root}: unexpected words of its process: {answer!r:.200}", {"file": self.root})


def open_table(settings: DatabaseSettings, root: SourceRoot | None, database: str, files: Files,
               options: TableOptions) -> TableSource | None:  # fmt: skip
    """Return the source of a database that is a table: at its own place, else below the root."""
    table, catalog = settings.table, settings.catalog
    if catalog is not None:
        place = TablePlace(f"the table {table} in its catalog", files, None, files, options, table or "", catalog)
    elif table is not None:
        above, _, name = table.rpartition("/")
        is_file = ".metadata.json" in name
        place = TablePlace("", files, None, files, options, name if is_file else "")
        place = place.moved(above.rpartition("/")[0] if is_file else table)
        place = replace(place, within=place.root)
    elif root is not None:
        files_there = files_of(root.remote, files)
        place = TablePlace(root.place(database), files_there, root.remote, files, options, within=root.root)
    else:
        return None
    return TableSource(settings.format or "", place)
