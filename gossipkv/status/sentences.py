"""How a node stands, and a version on it, in sentences; whether that is well, and why not, is for `judging`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.status.reading import map_of, partitions_of, whole_of
from gossipkv.status.words import duration_text, left_text, plain, size_text, some_text, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.status.versions import VersionStatus
    from gossipkv.wire.rpc import Value

FEW_RUNS: Final = 8  # Of partitions in a line.


# What is said of a store, by the name of a counter.
_OF_STORE: Final = {
    "batches": "{} batches",
    "memtable_bytes": "{} in memory",
    "young_runs": "{} young runs",
    "run_bytes": "{} in runs",
    "log_kept_bytes": "{} of log",
    "debt_bytes": "{} to be merged",
}


# Of a node


def of_memory(info: Mapping[str, Value]) -> str | None:
    """How much of the mapped files is resident, and why; None: nothing is mapped."""
    memory = map_of(info.get("memory"))
    mapped, compressed = whole_of(memory.get("mapped_bytes")), whole_of(memory.get("compressed_bytes"))
    room = whole_of(memory.get("room_bytes"))
    if not mapped and not compressed:
        return None
    resident = {"all": "all resident", "active": "the active versions resident, the others paged", "none": "paged"}
    how = resident.get(plain(memory.get("resident")), "-")
    if memory.get("residency") != "auto":
        how += " by the setting"
    why = "no limit is known" if room is None else f"room for {size_text(room)} by {plain(memory.get('limit'))}"
    apart = f"; beside that {size_text(compressed)} compressed, paged" if compressed else ""
    return f"memory: {size_text(mapped or 0)} mapped, {how}: {why}{apart}"


def of_tables(info: Mapping[str, Value]) -> str | None:
    """How the store of the tables stands; None: there is none that is open."""
    tables = map_of(info.get("tables"))
    if tables.get("state") != "open":
        return None
    counted = map_of(tables.get("counters"))
    written, from_users = whole_of(counted.get("log_bytes")), whole_of(counted.get("user_bytes"))
    merged = whole_of(counted.get("merged_bytes"))
    told = [f"tables: open, life {plain(tables.get('life'))}"]
    for name, words in _OF_STORE.items():
        number = whole_of(counted.get(name))
        if number is not None:
            told.append(words.format(size_text(number) if name.endswith("_bytes") else f"{number:,}"))
    if written is not None and merged is not None and from_users:
        told.append(f"{(written + merged) / from_users:.1f} bytes written for each that came")
    return ", ".join(told)


def of_certificate(info: Mapping[str, Value]) -> str | None:
    """Until when it holds; None: there is none."""
    expires_s = whole_of(info.get("certificate_expires_s"))
    return None if expires_s is None else f"certificate: holds until {time_text(expires_s)}"


# Of versions, as they are on that node


def remarks(version: VersionStatus, progress: str = "", *, alike: bool = True) -> str:
    """What is to be said beside a version: `progress` while it is built, and with `alike` which functions fit, too."""
    said = []
    if version.held:
        said.append("held")
    if version.waiting_for is not None:
        said.append("waits for room" if version.lacks_space else f"waits for {version.waiting_for}")
    if version.state == "BUILDING" and progress:
        said.append(progress)
    if version.waited_s is not None:
        said.append(f"waiting {duration_text(int(version.waited_s))}")
    if alike and version.functions[1:]:
        said.append(f"{' and '.join(version.functions[1:])} would do as well")
    if version.duplicates:
        said.append(f"{version.duplicates:,} duplicates")
    if version.scrub is not None:
        said.append(version.scrub)
    if version.kept_for:
        said.append(f"kept for {some_text(version.kept_for)}")
    if version.source_differs:
        said.append("source has changed since")
    return "; ".join(said)


def progress_text(version: VersionStatus) -> str:
    """How far its build is, and how long it will go on; nothing where that is not told."""
    if version.done is None:
        return ""
    return f"{version.done:.0%}{left_text(version.remaining_s)}"


# Of partitions


def runs_of(some: Mapping[str, Value], version: Mapping[str, Value]) -> str:
    """The first runs of a set of a version's partitions."""
    if "bitmap" in some:
        count = whole_of(version.get("partition_count")) or 0
        words = partitions_of(dict(some), count).in_words(FEW_RUNS)
        return words.partition(" and ")[0] + (",..." if " and " in words else "")
    runs = plain(some.get("runs")).split(",") if some.get("runs") else []
    return ",".join([*runs[:FEW_RUNS], *(["..."] if len(runs) > FEW_RUNS else [])])
