"""The end of a job that wrote sorted files: checks that all are there and agree, and declares the version complete."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gossipkv.dataset.local.manifest import partition_name
from gossipkv.dataset.local.partition import PartitionClaim, claim_of, refuse_strayed
from gossipkv.dataset.offline.destinations import destination
from gossipkv.dataset.source.declared_partitions import Declared, write_declared
from gossipkv.dataset.source.listing import DECLARED_FILE, MAX_FILES, SUCCESS_FILE
from gossipkv.errors import SourceError
from gossipkv.storage.label import read_label

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from gossipkv.dataset.offline.destinations import Destination
    from gossipkv.environment.seam import Files
    from gossipkv.settings.masking import Option
    from gossipkv.storage.label import Label

# Each file costs an object store two round trips.
_LOOKS_AT_ONCE: Final = 16
_MAX_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class VersionReport:
    """A complete version."""

    partitions: int
    function: str
    records: int
    duplicates: int
    size_bytes: int


def finish_version(
    directory: str | os.PathLike[str],
    partitions: int,
    *,
    function: str | None = None,
    storage_options: Mapping[str, Option] | None = None,
    files: Files | None = None,
) -> VersionReport:
    """Declare a version complete after all tasks: write `_PARTITIONS.json`, then `_SUCCESS`.

    The function reads footers, not records: the writer of a file has checked its keys, and each node checks them again.
    The call may be repeated.

    Args:
        directory: as given to `write_partition`.
        partitions: the number of partitions.
        function: the function that all files must have; None: the one on which they agree.
        storage_options: options of fsspec for a URL.
        files: the file operations to use.

    Raises:
        SourceError: a partition is missing, something else is there, or files disagree; names them.
        Corrupt, UnsupportedFormat: a file is no whole sorted file.
        StorageError: the file system refuses.
    """
    if not 0 < partitions <= MAX_FILES:
        raise ValueError(f"partitions must be from 1 to {MAX_FILES:,}, got {partitions}")
    place = destination(directory, storage_options, files=files)
    names = [partition_name(partition) for partition in range(partitions)]
    _check_names(place, names)
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as looks:
        labels = list(looks.map(lambda name: _label(place, name), names))
    claims: dict[str, PartitionClaim] = {}
    for partition, label in enumerate(labels):
        found = claim_of(label)
        if found is None:
            raise _wrong(label.name, "the file names no partition; write it with gossipkv.dataset.write_partition")
        function = found.function if function is None else function
        claims[label.name] = found
        expected = PartitionClaim(function, partitions, partition, found.regrouped)
        if found != expected:
            raise _wrong(label.name, f"the file holds {_in_words(found)}, but {_in_words(expected)} is expected")
    refuse_strayed(claims)
    assert function is not None
    declared = Declared(function, partitions, {name: (partition,) for partition, name in enumerate(names)})
    place.remove_attempts()
    place.put(DECLARED_FILE, write_declared(declared))
    place.put(SUCCESS_FILE, b"")
    return VersionReport(
        partitions,
        function,
        sum(label.records for label in labels),
        sum(label.duplicates for label in labels),
        sum(label.size_bytes for label in labels),
    )


def _check_names(place: Destination, names: list[str]) -> None:
    """Check that every name is there, and nothing else that a node would take for data."""
    found = {name for name in place.names() if not name.startswith(("_", "."))}
    missing = [name for name in names if name not in found]
    if missing:
        raise _wrong(
            place.name,
            f"the directory has no {_first_names(missing)}; check that every task ran, with {len(names)} partitions",
        )
    foreign = sorted(found.difference(names))
    if foreign:
        raise _wrong(
            place.name,
            f"the directory has {_first_names(foreign)} beside its {len(names)} partitions, and a node would read that "
            "as data; remove it, for example after an earlier run, or write to an empty directory",
        )


def _label(place: Destination, name: str) -> Label:
    with place.open(name) as file:
        return read_label(file)


def _first_names(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def _in_words(claim: PartitionClaim) -> str:
    return f"partition {claim.partition} of {claim.partitions} by {claim.function!r}"


def _wrong(name: str, reason: str) -> SourceError:
    return SourceError(f"{name}: {reason}", {"file": name, "reason": reason})
