"""Sentences about the state of a node and of its versions; `judging` decides if the state is well, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.status.reading import map_of, partitions_of, whole_of
from gossipkv.status.words import duration_text, left_text, plain, size_text, some_text, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.status.versions import VersionStatus
    from gossipkv.wire.rpc import Value

FEW_RUNS: Final = 8  # The most runs of partitions in a line.


# Phrases about a store, by the name of a counter.
_OF_STORE: Final = {
    "batches": "{} batches",
    "memtable_bytes": "{} in memory",
    "young_runs": "{} young runs",
    "run_bytes": "{} in runs",
    "log_kept_bytes": "{} of log",
    "debt_bytes": "{} to be merged",
}


# Sentences about a node


def of_memory(info: Mapping[str, Value]) -> str | None:
    """Describe the resident part of mapped files, and the reason; None: nothing is mapped."""
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
    """Describe the state of the tables' store; None: no store is open."""
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
    """Name the expiry of the certificate; None: there is none."""
    expires_s = whole_of(info.get("certificate_expires_s"))
    return None if expires_s is None else f"certificate: holds until {time_text(expires_s)}"


# Sentences about versions on that node


def remarks(version: VersionStatus, progress: str = "", *, alike: bool = True) -> str:
    """Return remarks about a version: with `progress` of its build; `alike`: with other fitting functions."""
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
    """Return the progress of its build, and the remaining time; empty if not reported."""
    if version.done is None:
        return ""
    return f"{version.done:.0%}{left_text(version.remaining_s)}"


# Sets of partitions


def runs_of(some: Mapping[str, Value], version: Mapping[str, Value]) -> str:
    """Return the first runs of a set of a version's partitions."""
    if "bitmap" in some:
        count = whole_of(version.get("partition_count")) or 0
        words = partitions_of(dict(some), count).in_words(FEW_RUNS)
        return words.partition(" and ")[0] + (",..." if " and " in words else "")
    runs = plain(some.get("runs")).split(",") if some.get("runs") else []
    return ",".join([*runs[:FEW_RUNS], *(["..."] if len(runs) > FEW_RUNS else [])])
