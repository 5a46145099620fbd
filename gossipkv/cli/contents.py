"""What a path holds: sorted files, documents, directories of them; read without a lock and without changing anything.

A node may run in the directory meanwhile.  What it removes between our look and our touch is passed over; what it is
still building, or has set aside as damaged already, is not part of what it serves and is not looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.manifest import MANIFEST, Manifest, read_manifest
from gossipkv.environment import RealFiles
from gossipkv.errors import Corrupt, GossipKVError, StorageError, UnsupportedFormat
from gossipkv.storage.document import MAGIC as DOCUMENT_MAGIC
from gossipkv.storage.document import Body, decode
from gossipkv.storage.sorted_file import SUFFIX, SortedFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODE: Final = "NODE"
# Of a data directory: what is no part of what is served, or has no content.
PASSED_OVER: Final = frozenset({"building", "removing", "damaged", "LOCK"})

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
    body, _ = decode(data, str(path), kind)
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
    for path in sorted((directory / "datasets").glob(f"*/*/{MANIFEST}")):
        try:
            yield read_manifest(RealFiles(), path.parent)
        except FileNotFoundError:
            continue


def files_below(path: Path) -> list[Path]:
    """Every file to check, in order: `path` itself, or all below it that belong to what is served."""
    if not path.is_dir():
        return [path]
    top = PASSED_OVER if is_data_directory(path) else frozenset[str]()
    found = (item for item in path.rglob("*") if item.relative_to(path).parts[0] not in top)
    return sorted(item for item in found if item.is_file() and not item.name.endswith(".tmp"))


def check(path: Path) -> Checked:
    """Read every byte of a file, and compare it with its checksums."""
    size_bytes = 0
    trouble: GossipKVError | None = None
    try:
        size_bytes = path.stat().st_size
        if path.suffix == SUFFIX:
            with SortedFile(path) as file:
                file.verify()
        elif path.name == MANIFEST:
            _check_version(path.parent)
        else:
            document(path)
    except OSError as error:
        trouble = StorageError(f"{path}: {error.strerror}", {"file": str(path)})
    except GossipKVError as error:
        trouble = error
    return Checked(path, size_bytes, trouble)


def _check_version(directory: Path) -> None:
    """The manifest, and whether the files it lists are there, of the size it says, and no others."""
    manifest = read_manifest(RealFiles(), directory)
    for expected in manifest.files:
        path = directory / expected.name
        if not path.is_file():
            raise Corrupt(str(path), 0, "the file is missing, and the manifest lists it")
        if (size_bytes := path.stat().st_size) != expected.size_bytes:
            raise Corrupt(
                str(path), min(size_bytes, expected.size_bytes), "the size is not what the manifest says",
                expected=expected.size_bytes, got=size_bytes,
            )  # fmt: skip
    listed = {file.name for file in manifest.files}
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        if path.name not in listed:
            raise UnsupportedFormat(f"{path}: the manifest beside it does not list this file", {"file": str(path)})
