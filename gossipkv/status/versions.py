"""One version of a database, from a node's report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from gossipkv.status.reading import count_of, list_of, map_of, maps_of, number_of, text_of, whole_of
from gossipkv.status.words import duration_text, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gossipkv.wire.rpc import Value


@final
@dataclass(frozen=True, slots=True)
class VersionStatus:
    """One version of a database in the node's report; unreported values are None."""

    database: str
    name: str
    state: str
    partitions: str | None  # The number of local partitions; with the total, if they are not all.
    records: int | None
    size_bytes: int | None
    done: float | None
    remaining_s: float | None
    waited_s: float | None
    waiting_for: str | None
    lacks_space: bool
    source_differs: bool
    held: bool
    format: str | None
    functions: tuple[str, ...]  # The grouping function, and those that no key tells apart from it.
    duplicates: int | None
    scrub: str | None
    kept_for: tuple[str, ...]  # The nodes that may still need a retiring version.


def versions(told: Mapping[str, Value]) -> Iterator[VersionStatus]:
    """Yield every version, databases and versions in order."""
    for database, entry in sorted(maps_of(dict(told)).items()):
        for name, version in sorted(map_of(entry.get("versions")).items()):
            if isinstance(version, dict):
                yield _version(database, name, version, entry)


def _version(database: str, name: str, told: dict[str, Value], entry: dict[str, Value]) -> VersionStatus:
    building = map_of(told.get("progress"))
    return VersionStatus(
        database,
        name,
        str(told.get("state")),
        _partitions(told),
        whole_of(told.get("records")),
        whole_of(told.get("size_bytes")),
        number_of(building.get("done")),
        number_of(building.get("remaining_s")),
        number_of(told.get("waited_s")),
        text_of(told.get("waiting_for")),
        told.get("needed_bytes") is not None,
        told.get("source_differs") is True,
        entry.get("hold") == name,
        text_of(told.get("format")),
        _functions(told),
        whole_of(told.get("duplicates")),
        _scrub(told),
        tuple(map(plain, list_of(told.get("kept_by")))),
    )


def _partitions(told: dict[str, Value]) -> str | None:
    partitions, count = told.get("partitions"), whole_of(told.get("partition_count"))
    here = len(partitions) if isinstance(partitions, list) else None
    if isinstance(partitions, dict):
        here = count_of(partitions)
    if count is None or here == count:
        return None if here is None else str(here)
    return f"{here or 0:,} of {count:,}"


def _functions(told: dict[str, Value]) -> tuple[str, ...]:
    function = told.get("function")
    if function is None:
        return ()
    return str(function), *(str(name) for name in list_of(told.get("alike")) if name != function)


def _scrub(told: dict[str, Value]) -> str | None:
    """Return when the version was last read back from the disk, and whether that runs now."""
    scrub = told.get("scrub")
    if not isinstance(scrub, dict):
        return None
    words = ["being scrubbed"] if scrub.get("running") is True else []
    last_s, damaged_files = whole_of(scrub.get("last_s")), whole_of(scrub.get("damaged_files"))
    if last_s is not None:
        where = "" if scrub.get("bypassed_cache") is True else ", through the cache"
        found = f", {damaged_files:,} files damaged" if damaged_files else ""
        words.append(f"scrubbed {duration_text(last_s)} ago{where}{found}")
    return "; ".join(words) or None


def stray_text(told: dict[str, Value]) -> str:
    """Describe the stray keys that voided the function of the files."""
    first = map_of(told.get("first_stray"))
    count = whole_of(told.get("strays")) or 1
    offset = whole_of(first.get("offset")) or 0
    keys = "1 key strays" if count == 1 else f"{count:,} keys stray"
    return (
        f"grouped by {plain(told.get('function'))}, since {keys} from {plain(told.get('voided'))}: "
        f"first {plain(first['key']) + ' ' if 'key' in first else ''}in {plain(first.get('file'))}, byte {offset:,}"
    )
