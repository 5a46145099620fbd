"""Sentences about the state of a node and of its versions; `judging` decides if the state is well, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.status.words import duration_text, left_text, size_text, some_text, time_text

if TYPE_CHECKING:
    from gossipkv.status.reports import InfoReport, StrayKey, VersionStatus

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


def of_memory(info: InfoReport) -> str | None:
    """Describe the resident part of mapped files, and the reason; None: nothing is mapped."""
    memory = info.memory
    if not memory.mapped_bytes and not memory.compressed_bytes:
        return None
    resident = {"all": "all resident", "active": "the active versions resident, the others paged", "none": "paged"}
    how = resident.get(memory.resident, "-")
    if memory.residency != "auto":
        how += " by the setting"
    why = "no limit is known" if memory.room_bytes is None else f"room for {size_text(memory.room_bytes)}"
    by = "" if memory.room_bytes is None else f" by {memory.limit}"
    paged = f"; beside that {size_text(memory.compressed_bytes)} compressed, paged" if memory.compressed_bytes else ""
    return f"memory: {size_text(memory.mapped_bytes)} mapped, {how}: {why}{by}{paged}"


def of_tables(info: InfoReport) -> str | None:
    """Describe the state of the tables' store; None: no store is open."""
    if info.tables.state != "open":
        return None
    counters = info.tables.counters
    phrases = [f"tables: open, life {info.tables.life}"]
    for name, words in _OF_STORE.items():
        if (number := counters.get(name)) is not None:
            phrases.append(words.format(size_text(number) if name.endswith("_bytes") else f"{number:,}"))
    if counters.keys() >= {"log_bytes", "merged_bytes"} and (from_users := counters.get("user_bytes")):
        written = counters["log_bytes"] + counters["merged_bytes"]
        phrases.append(f"{written / from_users:.1f} bytes written for each that came")
    return ", ".join(phrases)


def of_certificate(info: InfoReport) -> str | None:
    """Name the expiry of the certificate; None: there is none."""
    expires_s = info.certificate_expires_s
    return None if expires_s is None else f"certificate: expires at {time_text(expires_s)}"


# Sentences about versions on that node


def remarks(version: VersionStatus, progress: str = "", *, is_held: bool, alike: bool = True) -> str:
    """Return remarks about a version: with `progress` of its build; `alike`: with other fitting functions."""
    phrases = ["held"] if is_held else []
    if version.waiting_for is not None:
        phrases.append("waits for room" if version.needed_bytes is not None else f"waits for {version.waiting_for}")
    if version.state == "BUILDING" and progress:
        phrases.append(progress)
    if version.waited_s is not None:
        phrases.append(f"waiting {duration_text(int(version.waited_s))}")
    if alike and version.functions[1:]:
        phrases.append(f"partitioned by {' and '.join(version.functions[1:])} as well")
    if version.duplicates:
        phrases.append(f"{version.duplicates:,} duplicates")
    if version.scrubbed:
        phrases.append(version.scrubbed)
    if version.kept_by:
        phrases.append(f"kept for {some_text(version.kept_by)}")
    if version.source_differs:
        phrases.append("source changed after the build")
    return "; ".join(phrases)


def progress_text(version: VersionStatus) -> str:
    """Return the progress of its build, and the remaining time; empty if not reported."""
    if version.progress.done is None:
        return ""
    return f"{version.progress.done:.0%}{left_text(version.progress.remaining_s)}"


def stray_text(version: VersionStatus, first: StrayKey) -> str:
    """Describe the stray keys that voided the function of the files."""
    count = version.strays or 1
    keys = "1 key strays" if count == 1 else f"{count:,} keys stray"
    key = "" if first.key is None else f"{first.key} "
    place = f"{key}in {first.file}, byte {first.offset:,}"
    return f"grouped by {version.function or '-'}, since {keys} from {version.voided}: first {place}"
