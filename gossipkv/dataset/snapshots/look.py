"""The program that reads the log and the metadata of a table: `python -m gossipkv.dataset.snapshots.look`.

They are their author's words, and parsers of JSON, Avro and Parquet read them.  So this happens apart from the node, in
a process that may use `MEMORY_BYTES`, and that the node ends after a time (`table_source`).

    standard input   the number of the leash; the place of a table; then requests, each a line of JSON: ["versions"], or
                     ["version", name]
    standard output  an answer to each, a line of JSON: what is asked for, or {"error": [kind, message, details],
                     "is_lasting": whether to ask again is of no use}
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.snapshots.table_source import MEMORY_BYTES, TablePlace
from gossipkv.dataset.source.listing import MAX_FILES
from gossipkv.dataset.source.remote import files_of
from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import READ
from gossipkv.errors import GossipKVError, SourceChanged, SourceError
from gossipkv.processes import leash
from gossipkv.processes.program import read_order, say_json
from gossipkv.settings.masking import scrub

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gossipkv.dataset.snapshots.table_source import Snapshot, SnapshotTable
    from gossipkv.environment.seam import FileEntry, Path

MAX_REASON_CHARACTERS: Final = 1_000
_CLASSES: Final = {"delta": "DeltaTable", "iceberg": "IcebergTable"}


class ConfinedFiles(RealFiles):
    """The files below a directory: no link leads elsewhere, and nothing but plain files is read."""

    def __init__(self, within: str) -> None:
        super().__init__()
        self._within = within

    def resolve(self, path: Path) -> str:
        resolved = super().resolve(path)
        if not PurePath(resolved).is_relative_to(super().resolve(self._within)):
            raise PermissionError(errno.EPERM, f"the link leads out of {self._within}, to {resolved}", os.fspath(path))
        if super().stat(resolved).kind == "other":
            raise OSError(errno.EINVAL, "it is a socket, fifo or device", os.fspath(path))
        return resolved

    def stat(self, path: Path) -> FileEntry:
        return super().stat(self.resolve(path))

    def list_directory(self, path: Path) -> list[FileEntry]:
        return super().list_directory(self.resolve(path))

    def open(self, path: Path, flags: int = READ, mode: int = 0o644) -> int:
        return super().open(self.resolve(path), flags, mode)


@final
class TableLook:
    """Answers questions about a table."""

    def __init__(self, kind: str, place: TablePlace) -> None:
        self._kind, self._place = kind, place
        self._table: SnapshotTable | None = None
        self._snapshots: dict[str, Snapshot] = {}

    def answer(self, method: str, *names: str) -> Mapping[str, object]:
        """Return the answer to a request."""
        try:
            with self._refusing():
                return self._versions() if method == "versions" else self._version(*names)
        except SourceError as error:
            # The refusal of a snapshot does not change; an error of reading it may pass.
            is_refusal = not isinstance(error, SourceChanged) and error.__cause__ is None
            is_lasting = is_refusal and any(name in self._snapshots for name in names)
            return {"error": [type(error).__name__, error.message, error.details], "is_lasting": is_lasting}

    def _versions(self) -> Mapping[str, object]:
        table = self._opened()
        self._snapshots = {snapshot.name: snapshot for snapshot in table.snapshots()}
        location = table.place.root if table.place.remote is None else table.place.remote.url
        return {"names": sorted(self._snapshots), "location": location}

    def _version(self, name: str) -> Mapping[str, object]:
        table = self._opened()
        if name not in self._snapshots:
            self._versions()
        if name not in self._snapshots:
            root = self._place.root
            raise SourceError(f"{root}: the table has no snapshot {name} any more", {"file": root})
        schema, files = table.read(self._snapshots[name])
        if len(files) > MAX_FILES:
            raise SourceError(
                f"{self._place.root}: the snapshot has {len(files):,} data files; the limit is {MAX_FILES:,}; "
                "compact the table (OPTIMIZE, rewrite_data_files)",
                {"file": self._place.root, "limit": MAX_FILES},
            )
        ordered = sorted(files, key=lambda file: os.fsencode(file.name))
        return {"schema": schema, "files": [asdict(file) for file in ordered]}

    def _opened(self) -> SnapshotTable:
        if self._table is None:
            try:
                module = import_module(f"gossipkv.dataset.snapshots.{self._kind}")
                import_module("pyroaring")  # A build needs it where rows are deleted.
            except ImportError as error:
                raise SourceError(
                    f"{self._place.root}: {self._kind} tables need {error.name}, which is not installed; run `pip "
                    f"install 'gossipkv[{self._kind}]'`",
                    {"file": self._place.root},
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
            place = self._place if self._table is None else self._table.place
            secrets = {**(place.remote.options if place.remote else {}), **(place.catalog or {})}
            reason = error.message if isinstance(error, GossipKVError) else f"{type(error).__name__}: {error}"
            shown = scrub(" ".join(reason.split()), "", secrets)[:MAX_REASON_CHARACTERS]
            raise SourceError(f"{place.root}: the table cannot be read: {shown}", {"file": place.root}) from error


def main() -> int:
    """Answer the requests of standard input until it ends."""
    lines = sys.stdin.buffer
    leash.wear(int(lines.readline()))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    kind, root, remote, options, name, catalog, within = read_order(lines.readline(), tuple)
    files = ConfinedFiles(within) if within else RealFiles()
    look = TableLook(kind, TablePlace(root, files_of(remote, files), remote, files, options, name, catalog))
    for line in lines:
        say_json(look.answer(*json.loads(line)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
