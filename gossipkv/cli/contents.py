"""The contents of a path: sorted files, documents and directories, read without a lock and without any change.

The kind of a directory follows from its files:

    a data directory    NODE, or its siblings; checked is all that it serves, and the store of its tables as a
                        whole, by the names in its manifest
    a store             a manifest beside a log: a node's, or one that was set aside
    a cluster           cluster.json; checked is the data directory of each of its nodes
    a source root, one of its databases, or a version    sorted files, with or without a manifest; files of other
                        formats have no checksums of ours, and are recognised by their first records
    anything else       not ours

A node may run in the directory meanwhile.  Files that it removes after they were listed are skipped, and so are
versions that it is building or has set aside as damaged, since it does not serve them.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.formats.detect import batches, detect_file
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.local.manifest import MANIFEST, VersionManifest, read_manifest
from gossipkv.dataset.local.version import open_partition, read_version
from gossipkv.dataset.source.listing import DECLARED_FILE, SUCCESS_FILE, SourceRoot
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import DataError, GossipKVError, SourceError, StorageError, UnsupportedFormat
from gossipkv.launcher import plan
from gossipkv.node.forgotten import TABLES, is_forgotten
from gossipkv.node.identity import NODE, PEERS
from gossipkv.storage.document import MAGIC as DOCUMENT_MAGIC
from gossipkv.storage.document import MAX_DOCUMENT_BYTES, Body, decode
from gossipkv.storage.engine import manifest as store_manifest
from gossipkv.storage.engine.manifest import describe_store as describe
from gossipkv.storage.engine.verify import verify_store
from gossipkv.storage.slots import decode_slots
from gossipkv.storage.sorted_file import HEADER_MAGIC, SUFFIX, SortedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gossipkv.dataset.source.files import SourceFile
    from gossipkv.wire.rpc import Value

DATASETS: Final = "datasets"
# Entries of a data directory that are not served, or have no content.
LOCK: Final = "LOCK"
PASSED_OVER: Final = frozenset({"building", "removing", "damaged", LOCK, TABLES})
# Files of a version without checksums, for nodes that use it as a source.
BESIDE_DATA: Final = frozenset({DECLARED_FILE, SUCCESS_FILE})

NAMED: Final = frozenset({NODE, PEERS, MANIFEST, plan.DOCUMENT})
LEVELS: Final = 3  # Levels of a source root: databases, versions, files.
EVIDENCE_FILES: Final = 100  # Files that are opened to find one with records.

_KIND: Final = re.compile(DOCUMENT_MAGIC + rb"[0-9a-f]{8} ([A-Z]{1,32}) ")


@final
@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that was checked byte by byte."""

    path: Path
    size_bytes: int
    trouble: GossipKVError | None


@final
@dataclass(frozen=True, slots=True)
class ContentPlace:
    """The files to check at a path."""

    kind: str
    files: list[Path]  # Files with checksums of ours, in order.
    source_files: int = 0  # Number of files without our checksums.
    stores: tuple[Path, ...] = ()  # Stores of tables; `files` does not include their files.


def is_data_directory(path: Path) -> bool:
    """Return True if a node keeps its files in `path`; the document NODE may be missing, which is damage."""
    return (path / NODE).is_file() or ((path / LOCK).is_file() and (path / DATASETS).is_dir())


def is_store(path: Path) -> bool:
    """Return True if `path` is a store of tables."""
    return (path / store_manifest.MANIFEST).is_file() and (path / store_manifest.LOG).is_dir()


def stores_of(path: Path) -> tuple[Path, ...]:
    """Return the store of tables in a data directory, if it exists or NODE names it: then its absence is damage."""
    is_named = False
    with contextlib.suppress(GossipKVError):  # The check of NODE itself reports the error.
        is_named = bool(document(path / NODE)[1].get("store"))
    return (path / TABLES,) if is_named or (path / TABLES).is_dir() else ()


def is_cluster(path: Path) -> bool:
    """Return True if `gossipkv cluster` keeps its nodes in `path`."""
    return (path / plan.DOCUMENT).is_file()


def document(path: Path) -> tuple[str, Body]:
    """Return the kind and body of a document.

    Raises:
        Corrupt, UnsupportedFormat: the file is damaged, no document, or too new.
        StorageError: the file cannot be read.
    """
    data = read(path)
    match = _KIND.match(data)
    kind = match[1].decode() if match is not None else "DOCUMENT"
    if path.name == NODE:
        return NODE, decode_slots(data, str(path), NODE, every=True)
    return kind, decode(data, str(path), kind)


def read(path: Path, size_bytes: int = MAX_DOCUMENT_BYTES + 1) -> bytes:
    """Return the file's first bytes: by default one more than a document may have."""
    try:
        with path.open("rb") as file:
            return file.read(size_bytes)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", {"file": str(path)}) from error


def is_document(path: Path) -> bool:
    """Return True if the file begins like a document."""
    return read(path, len(DOCUMENT_MAGIC)) == DOCUMENT_MAGIC


def is_sorted_file(path: Path) -> bool:
    """Return True if the file begins like a sorted file."""
    return read(path, len(HEADER_MAGIC)) == HEADER_MAGIC


def manifests(directory: Path) -> Iterator[VersionManifest]:
    """Yield the built versions of a data directory, in order; skip those removed meanwhile."""
    for path in sorted((directory / DATASETS).glob(f"*/*/{MANIFEST}")):
        try:
            yield read_manifest(RealFiles(), path.parent)
        except FileNotFoundError:
            continue


def look(path: Path) -> ContentPlace | None:
    """Return the files to check at a path; None if none is ours, or would be read by a node.

    Raises:
        StorageError, SourceError: a directory cannot be read, so the check would be incomplete.
    """
    if not path.is_dir():
        return ContentPlace("file", [path]) if _is_ours(path) else None
    if is_data_directory(path):
        return ContentPlace("data directory", _served(path), stores=stores_of(path))
    if is_store(path):
        return ContentPlace("store", [], stores=(path,))
    if is_cluster(path):
        nodes = [place for place in sorted(path.glob("n*/data")) if is_data_directory(place)]
        files = [path / plan.DOCUMENT, *(file for node in nodes for file in _served(node))]
        return ContentPlace("cluster", files, stores=tuple(store for node in nodes for store in stores_of(node)))
    found = [file for file in _published(path, LEVELS) if file.suffix == SUFFIX or file.name == MANIFEST]
    sources = [file for file in _source_files(path) if not file.name.endswith(SUFFIX)]
    if not found and not any(map(_holds_records, sources[:EVIDENCE_FILES])):
        return None
    return ContentPlace("source", sorted(found), len(sources))


def _is_ours(file: Path) -> bool:
    """Return True if the file is ours, by its name or first bytes, or (for a damaged file) by its place."""
    return (
        file.suffix == SUFFIX
        or file.name in NAMED
        or is_document(file)
        or is_sorted_file(file)
        or any(map(is_data_directory, file.absolute().parents))
    )


def _served(directory: Path) -> list[Path]:
    """Return every file that a data directory serves; each version's manifest is included even if it is missing."""
    found = {file for file in _walk(directory) if file.is_file()}
    found |= {version / MANIFEST for version in (directory / DATASETS).glob("*/*") if version.is_dir()}
    return sorted(found | {directory / NODE})


def _walk(path: Path) -> Iterator[Path]:
    """Yield every file below a data directory that is to be checked."""
    for place, directories, names in os.walk(path, onerror=_refuse):
        here = Path(place)
        passed_over = PASSED_OVER if here == path else frozenset[str]()
        directories[:] = [name for name in directories if name not in passed_over and not is_forgotten(name)]
        passed_over |= BESIDE_DATA
        yield from (here / name for name in names if name not in passed_over and not name.endswith(".tmp"))


def _published(path: Path, levels: int) -> Iterator[Path]:
    """Yield every file below a directory, at most `levels` deep; skip working places of jobs, such as `_temporary`."""
    for place, directories, names in os.walk(path, onerror=_refuse):
        here = Path(place)
        is_deepest = len(here.relative_to(path).parts) + 1 == levels
        directories[:] = [name for name in directories if not is_deepest and not name.startswith(("_", "."))]
        yield from (here / name for name in names if not name.startswith("."))


def _source_files(path: Path) -> list[SourceFile]:
    """Return the data files that a node would read from `path` as a version, a database or a source root.

    Raises:
        SourceError: the directory cannot be read.
    """
    source = SourceRoot(path, RealFiles())
    with contextlib.suppress(SourceError):  # A path with directories is not a version.
        return [*source.listed(source.root, "", "").files]
    found: list[SourceFile] = []
    top = source.databases()
    for name in top.names if not top.ignored else ():
        try:
            found += source.version("", name).files
        except SourceError:
            versions = source.versions(name)
            for version in versions.names if not versions.ignored else ():
                with contextlib.suppress(SourceError):
                    found += source.version(name, version).files
    return found


def _holds_records(file: SourceFile) -> bool:
    """Return True if a node would read records from the file; text counts if its lines have a TAB."""
    reading = FileReading("key", "value")
    try:
        with SourceReader(RealFiles(), file) as reader:
            form = detect_file(reader, reading)
            if form != "tsv":
                return form is not None
            with contextlib.closing(batches(form, reader, reading)) as found:
                return bool(next(found, ()))
    except GossipKVError:
        return False


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # A running node has removed the directory meanwhile.
        raise StorageError(f"{error.filename}: {error.strerror}", {"file": str(error.filename)}) from error


def is_gone(path: Path) -> bool:
    """Return True if a running node has removed the file: it moves a version as a whole, and never NODE."""
    return path.name != NODE and not (path.parent if path.name == MANIFEST else path).exists()


def check(path: Path, on_progress: Callable[[float], object]) -> CheckedFile:
    """Check every byte of a file against its checksums; `on_progress` is called with the share read, up to 1."""
    trouble: GossipKVError | None = None
    try:
        if path.name == MANIFEST:
            _check_version(path.parent)
        elif path.name == plan.DOCUMENT:
            plan.load(path.parent)
        elif path.suffix == SUFFIX or is_sorted_file(path):
            with SortedFile(path) as file:
                file.verify(on_progress)
        else:
            document(path)
    except OSError as error:
        trouble = StorageError(f"{path}: {error.strerror}", {"file": str(path)})
    except GossipKVError as error:
        trouble = error
    return CheckedFile(path, path.stat().st_size if path.exists() else 0, trouble)


def check_store(path: Path, on_progress: Callable[[int], object]) -> list[CheckedFile]:
    """Check every live byte of the store of tables at `path`; `on_progress` is called with numbers of bytes read."""
    found = verify_store(RealFiles(), path, on_progress)
    return [CheckedFile(Path(checked.path), checked.size_bytes, checked.trouble) for checked in found]


def describe_store(path: Path) -> dict[str, Value]:
    """Describe the store of tables at `path`; if it cannot be read, `damage` has the reason."""
    store: dict[str, Value] = {"directory": str(path)}
    try:
        return store | {**describe(RealFiles(), path)}
    except FileNotFoundError as error:
        return store | {"damage": f"{error.filename}: {error.strerror}"}
    except DataError as error:
        return store | {"damage": error.message}


def store_bytes(path: Path) -> int:
    """Return the approximate size of a store in bytes: files come and go."""
    total = 0
    for file in path.rglob("*"):
        with contextlib.suppress(OSError):
            total += file.stat().st_size
    return total


def _check_version(directory: Path) -> None:
    """Check as a node does before it opens a version: manifest, names, size and footer of every file, no other file."""
    files = RealFiles()
    database, name = directory.parent.name, directory.name
    if not (directory.parts[-3:-2] == (DATASETS,) and is_data_directory(directory.parents[2])):
        # A version outside a data directory may have any directory name.
        identity = read_manifest(files, directory).identity
        database, name = identity.database, identity.version
    manifest = read_version(files, directory, database, name)
    for file in manifest.files_here:  # One at a time: a shell allows fewer open files than a version may have.
        open_partition(files, directory, file).close()
    listed = {file.name for file in manifest.files_here}
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        if path.name not in listed:
            raise UnsupportedFormat(
                f"{path}: the manifest in its directory does not list this file", {"file": str(path)}
            )
