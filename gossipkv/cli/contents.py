"""What a path holds: sorted files, documents, directories of them; read without a lock and without changing anything.

A node may run in the directory meanwhile.  What it removes between our look and our touch is passed over; what it is
still building, or has set aside as damaged already, is not part of what it serves and is not looked at.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.local.manifest import FORMAT, KIND, MANIFEST, Manifest, read_manifest
from gossipkv.dataset.local.version import open_partition, read_version
from gossipkv.dataset.source.listing import DECLARED_FILE, SUCCESS_FILE
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import GossipKVError, StorageError, UnsupportedFormat
from gossipkv.node.identity import NODE, NODE_FORMAT
from gossipkv.storage.document import MAGIC as DOCUMENT_MAGIC
from gossipkv.storage.document import Body, decode
from gossipkv.storage.sorted_file import SUFFIX, SortedFile

if TYPE_CHECKING:
    from collections.abc import Iterator

NEWEST_FORMAT: Final = {KIND: FORMAT, NODE: NODE_FORMAT}
DATASETS: Final = "datasets"
# Of a data directory: what is no part of what is served, or has no content.
PASSED_OVER: Final = frozenset({"building", "removing", "damaged", "LOCK"})
# Of a version: what it says to nodes that take it for a source, without checksums.
BESIDE_DATA: Final = frozenset({DECLARED_FILE, SUCCESS_FILE})

_KIND: Final = re.compile(DOCUMENT_MAGIC + rb"[0-9a-f]{8} ([A-Z]{1,32}) ")


@final
@dataclass(frozen=True, slots=True)
class Checked:
    """A file that was looked at, byte by byte."""

    path: Path
    size_bytes: int
    trouble: GossipKVError | None


def is_data_directory(path: Path) -> bool:
    """Whether a node keeps its files there."""
    return (path / NODE).is_file()


def document(path: Path) -> tuple[str, Body]:
    """Kind and body of a document.

    Raises:
        Corrupt, UnsupportedFormat: it is damaged, or none, or too new.
        StorageError: it cannot be read.
    """
    data = read(path)
    match = _KIND.match(data)
    kind = match[1].decode() if match is not None else "DOCUMENT"
    body, _ = decode(data, str(path), kind, newest_format=NEWEST_FORMAT.get(kind, 1))
    return kind, body


def read(path: Path, size_bytes: int | None = None) -> bytes:
    """The file's first bytes, or all of them."""
    try:
        with path.open("rb") as file:
            return file.read() if size_bytes is None else file.read(size_bytes)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", {"file": str(path)}) from error


def is_document(path: Path) -> bool:
    """Whether it begins as a document does."""
    return read(path, len(DOCUMENT_MAGIC)) == DOCUMENT_MAGIC


def manifests(directory: Path) -> Iterator[Manifest]:
    """The built versions of a data directory, in order; one that is gone when it is its turn is left out."""
    for path in sorted((directory / DATASETS).glob(f"*/*/{MANIFEST}")):
        try:
            yield read_manifest(RealFiles(), path.parent)
        except FileNotFoundError:
            continue


def files_below(path: Path) -> list[Path]:
    """Every file to check, in order: `path` itself, or all below it that belong to what is served.

    A version in a data directory has a manifest to check even if that is gone.

    Raises:
        StorageError: a directory cannot be read, so nobody could say that all is well.
    """
    if not path.is_dir():
        return [path]
    is_data = is_data_directory(path)
    top = PASSED_OVER if is_data else frozenset[str]()
    found = set()
    for place, directories, names in os.walk(path, onerror=_refuse):
        here = Path(place)
        passed_over = top if here == path else frozenset[str]()
        directories[:] = [name for name in directories if name not in passed_over]
        passed_over |= BESIDE_DATA
        files = [here / name for name in names if name not in passed_over and not name.endswith(".tmp")]
        found |= {file for file in files if file.is_file()}
    if is_data:
        found |= {version / MANIFEST for version in (path / DATASETS).glob("*/*") if version.is_dir()}
    return sorted(found)


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # A running node has removed it meanwhile.
        raise StorageError(f"{error.filename}: {error.strerror}", {"file": str(error.filename)}) from error


def is_gone(path: Path) -> bool:
    """Whether a running node has removed it meanwhile: it moves a version as a whole."""
    return not (path.parent if path.name == MANIFEST else path).exists()


def check(path: Path) -> Checked:
    """Read every byte of a file, and compare it with its checksums."""
    trouble: GossipKVError | None = None
    try:
        if path.name == MANIFEST:
            _check_version(path.parent)
        elif path.suffix == SUFFIX:
            with SortedFile(path) as file:
                file.verify()
        else:
            document(path)
    except OSError as error:
        trouble = StorageError(f"{path}: {error.strerror}", {"file": str(path)})
    except GossipKVError as error:
        trouble = error
    return Checked(path, path.stat().st_size if path.exists() else 0, trouble)


def _check_version(directory: Path) -> None:
    """Whether a node would open it: manifest, names, every file's size and footer; and that no other file is there."""
    files = RealFiles()
    database, name = directory.parent.name, directory.name
    if not (directory.parts[-3:-2] == (DATASETS,) and is_data_directory(directory.parents[2])):
        identity = read_manifest(files, directory).identity  # Elsewhere a version may lie under any name.
        database, name = identity.database, identity.version
    manifest = read_version(files, directory, database, name)
    for file in manifest.held:  # One at a time: a shell allows fewer open files than a version may have.
        open_partition(files, directory, file).close()
    listed = {file.name for file in manifest.held}
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        if path.name not in listed:
            raise UnsupportedFormat(f"{path}: the manifest beside it does not list this file", {"file": str(path)})
