"""What a path holds: sorted files, documents, directories of them; read without a lock and without changing anything.

Directories are known by what stands in them:

    a data directory    NODE, or what a node makes beside it; all that it serves is to be checked, the store of its
                        tables as a whole, by what its manifest names
    a store             its manifest beside its log: a backup, or one that was set aside
    a cluster           cluster.json; the data directory of each of its nodes
    a source root, one of its databases, or a version    sorted files, with or without a manifest; what is in other
                        formats has no checksums of ours, and is known by its first records
    anything else       not ours

A node may run in the directory meanwhile.  What it removes between our look and our touch is passed over; what it is
still building, or has set aside as damaged already, is not part of what it serves and is not looked at.
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
from gossipkv.node.forgotten import RESTORING, TABLES, is_forgotten
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
# Of a data directory: what is no part of what is served, or has no content.
LOCK: Final = "LOCK"
PASSED_OVER: Final = frozenset({"building", "removing", "damaged", LOCK, RESTORING, TABLES})
# Of a version: what it says to nodes that take it for a source, without checksums.
BESIDE_DATA: Final = frozenset({DECLARED_FILE, SUCCESS_FILE})

NAMED: Final = frozenset({NODE, PEERS, MANIFEST, plan.DOCUMENT})
LEVELS: Final = 3  # Of a source root: databases, versions, files.
EVIDENCE_FILES: Final = 100  # That are looked into, to find one that holds records.

_KIND: Final = re.compile(DOCUMENT_MAGIC + rb"[0-9a-f]{8} ([A-Z]{1,32}) ")


@final
@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that was looked at, byte by byte."""

    path: Path
    size_bytes: int
    trouble: GossipKVError | None


@final
@dataclass(frozen=True, slots=True)
class ContentPlace:
    """What there is to check at a path."""

    kind: str
    files: list[Path]  # With checksums of ours, in order.
    source_files: int = 0  # Without.
    stores: tuple[Path, ...] = ()  # Of tables; what is in them is not among the files.


def is_data_directory(path: Path) -> bool:
    """Whether a node keeps its files there; the document NODE may be missing, which is damage."""
    return (path / NODE).is_file() or ((path / LOCK).is_file() and (path / DATASETS).is_dir())


def is_store(path: Path) -> bool:
    """Whether the store of tables is there, or a backup of one."""
    return (path / store_manifest.MANIFEST).is_file() and (path / store_manifest.LOG).is_dir()


def stores_of(path: Path) -> tuple[Path, ...]:
    """The store of the tables in a data directory, if there is one, or NODE says so: then its absence is damage."""
    is_named = False
    with contextlib.suppress(GossipKVError):  # It is told when NODE has its turn.
        is_named = bool(document(path / NODE)[1].get("store"))
    return (path / TABLES,) if is_named or (path / TABLES).is_dir() else ()


def is_cluster(path: Path) -> bool:
    """Whether `gossipkv cluster` keeps its nodes there."""
    return (path / plan.DOCUMENT).is_file()


def document(path: Path) -> tuple[str, Body]:
    """Kind and body of a document.

    Raises:
        Corrupt, UnsupportedFormat: it is damaged, or none, or too new.
        StorageError: it cannot be read.
    """
    data = read(path)
    match = _KIND.match(data)
    kind = match[1].decode() if match is not None else "DOCUMENT"
    if path.name == NODE:
        return NODE, decode_slots(data, str(path), NODE, every=True)
    return kind, decode(data, str(path), kind)


def read(path: Path, size_bytes: int = MAX_DOCUMENT_BYTES + 1) -> bytes:
    """Return the file's first bytes: more than a document may have, unless fewer are wanted."""
    try:
        with path.open("rb") as file:
            return file.read(size_bytes)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", {"file": str(path)}) from error


def is_document(path: Path) -> bool:
    """Whether it begins as a document does."""
    return read(path, len(DOCUMENT_MAGIC)) == DOCUMENT_MAGIC


def is_sorted_file(path: Path) -> bool:
    """Whether it begins as a sorted file does."""
    return read(path, len(HEADER_MAGIC)) == HEADER_MAGIC


def manifests(directory: Path) -> Iterator[VersionManifest]:
    """The built versions of a data directory, in order; one that is gone when it is its turn is left out."""
    for path in sorted((directory / DATASETS).glob(f"*/*/{MANIFEST}")):
        try:
            yield read_manifest(RealFiles(), path.parent)
        except FileNotFoundError:
            continue


def look(path: Path) -> ContentPlace | None:
    """What is to be checked at a path; None: nothing there is ours, or would be read by a node.

    Raises:
        StorageError, SourceError: a directory cannot be read, so nobody could say that all is well.
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
    others = [file for file in _source_files(path) if not file.name.endswith(SUFFIX)]
    if not found and not any(map(_holds_records, others[:EVIDENCE_FILES])):
        return None
    return ContentPlace("source", sorted(found), len(others))


def _is_ours(file: Path) -> bool:
    """Whether it is one of our files, by its name or what it begins with; a damaged one is by where it lies."""
    return (
        file.suffix == SUFFIX
        or file.name in NAMED
        or is_document(file)
        or is_sorted_file(file)
        or any(map(is_data_directory, file.absolute().parents))
    )


def _served(directory: Path) -> list[Path]:
    """Every file of a data directory that belongs to what is served; a version has a manifest even if that is gone."""
    found = {file for file in _walk(directory) if file.is_file()}
    found |= {version / MANIFEST for version in (directory / DATASETS).glob("*/*") if version.is_dir()}
    return sorted(found | {directory / NODE})


def _walk(path: Path) -> Iterator[Path]:
    """Every file below a data directory but for those that are passed over."""
    for place, directories, names in os.walk(path, onerror=_refuse):
        here = Path(place)
        passed_over = PASSED_OVER if here == path else frozenset[str]()
        directories[:] = [name for name in directories if name not in passed_over and not is_forgotten(name)]
        passed_over |= BESIDE_DATA
        yield from (here / name for name in names if name not in passed_over and not name.endswith(".tmp"))


def _published(path: Path, levels: int) -> Iterator[Path]:
    """Every file below a directory, so many levels deep; of places that jobs work in, as `_temporary`, none."""
    for place, directories, names in os.walk(path, onerror=_refuse):
        here = Path(place)
        is_deepest = len(here.relative_to(path).parts) + 1 == levels
        directories[:] = [name for name in directories if not is_deepest and not name.startswith(("_", "."))]
        yield from (here / name for name in names if not name.startswith("."))


def _source_files(path: Path) -> list[SourceFile]:
    """The data files that a node would read there, if it is a version, a database or a source root; else none.

    Raises:
        SourceError: the directory cannot be read.
    """
    source = SourceRoot(path, RealFiles())
    with contextlib.suppress(SourceError):  # There are directories in it: it is no version.
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
    """Whether a node would take it for records: any text is of some format, but few have a TAB in each line."""
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
    if not isinstance(error, FileNotFoundError):  # A running node has removed it meanwhile.
        raise StorageError(f"{error.filename}: {error.strerror}", {"file": str(error.filename)}) from error


def is_gone(path: Path) -> bool:
    """Whether a running node has removed it meanwhile: it moves a version as a whole, and NODE stays."""
    return path.name != NODE and not (path.parent if path.name == MANIFEST else path).exists()


def check(path: Path, on_progress: Callable[[float], object]) -> CheckedFile:
    """Read every byte of a file, and compare it with its checksums; `on_progress` is told how far that is, up to 1."""
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
    """Read every byte of the store of tables at `path` that counts; `on_progress` is told how many more were read."""
    found = verify_store(RealFiles(), path, on_progress)
    return [CheckedFile(Path(one.path), one.size_bytes, one.trouble) for one in found]


def describe_store(path: Path) -> dict[str, Value]:
    """What is in the store of tables at `path`; where that cannot be said, why: `damage`."""
    told: dict[str, Value] = {"directory": str(path)}
    try:
        return told | {**describe(RealFiles(), path)}
    except FileNotFoundError as error:
        return told | {"damage": f"{error.filename}: {error.strerror}"}
    except DataError as error:
        return told | {"damage": error.message}


def store_bytes(path: Path) -> int:
    """How many bytes lie in a store, about: files come and go."""
    total = 0
    for file in path.rglob("*"):
        with contextlib.suppress(OSError):
            total += file.stat().st_size
    return total


def _check_version(directory: Path) -> None:
    """Whether a node would open it: manifest, names, every file's size and footer; and that no other file is there."""
    files = RealFiles()
    database, name = directory.parent.name, directory.name
    if not (directory.parts[-3:-2] == (DATASETS,) and is_data_directory(directory.parents[2])):
        identity = read_manifest(files, directory).identity  # Elsewhere a version may lie under any name.
        database, name = identity.database, identity.version
    manifest = read_version(files, directory, database, name)
    for file in manifest.files_here:  # One at a time: a shell allows fewer open files than a version may have.
        open_partition(files, directory, file).close()
    listed = {file.name for file in manifest.files_here}
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        if path.name not in listed:
            raise UnsupportedFormat(f"{path}: the manifest beside it does not list this file", {"file": str(path)})
