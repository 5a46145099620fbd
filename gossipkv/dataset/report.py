"""Reports about a database to people and scripts: the maps of the methods `databases` and `status`.

This module describes the local versions; `cluster.spread` describes the members' versions and the conditions to wait
for.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gossipkv.dataset.cluster.spread import Spread, as_bitmap, gaps
from gossipkv.dataset.lifecycle.version_states import VersionState, VersionWord
from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from gossipkv.dataset.database import Database
    from gossipkv.dataset.lifecycle.version_build import VersionBuilder
    from gossipkv.dataset.lifecycle.version_states import Life
    from gossipkv.dataset.local.manifest import VersionManifest
    from gossipkv.dataset.scrub.scrub import Scrub
    from gossipkv.errors import Detail


def summary(database: Database) -> dict[str, Detail]:
    """Return one entry of `databases`; `version`, `time` and `partitions` are nil while nothing is served."""
    served, times = database.served, database.source_times()
    identity = None if served is None else database.view.identity(served.name)
    states: dict[str, Detail] = {name: life.word.value for name, life in sorted(database.lives.items())}
    return {
        "name": database.name,
        "kind": "dataset",
        "version": None if served is None else served.name,
        "partitions": None if identity is None else identity.partitions,
        "time": None if served is None else times.get(served.name),
        "times": {**times},
        "states": states,
    }


def partition_map(database: Database) -> dict[str, Detail]:
    """Return a client's routing data: the active version's function, and the owners' partitions as bitmaps.

    The values are nil while nothing is served.
    """
    served = database.served
    entry: dict[str, Detail] = {"kind": "dataset", "version": None if served is None else served.name}
    if served is None:
        return {**entry, "partitioner": None, "partitions": None, "owners": []}
    spread = Spread(database.view, bitmaps=True).of_version(served.name)
    identity = database.view.identity(served.name)
    owners = spread.get("owners", [])
    function, partitions = (None, None) if identity is None else (identity.function, identity.partitions)
    return {**entry, "partitioner": function, "partitions": partitions, "owners": owners}


def outline(database: Database) -> dict[str, Detail]:
    """Return the entry of `info`: the active version, and the number of versions in each state.

    For the active version the entry has the time of its source, and the partitions with no live owner or too few.
    """
    served = database.served
    versions: dict[str, Detail] = {**Counter(life.word.value for life in database.lives.values())}
    if served is None:
        return {"version": None, "time": None, "versions": versions}
    entry: dict[str, Detail] = {
        "version": served.name,
        "time": database.source_times().get(served.name),
        "versions": versions,
    }
    return entry | gaps(database.view, served.name)


def status(
    database: Database, now_ms: int, scrub: Scrub, *, local: bool, bitmaps: bool = False, to_readers: bool = True
) -> dict[str, Detail]:
    """Return the entry of a database in `status`.

    `local`: only the local versions.  `bitmaps`: give sets of partitions in full, without walking through them.
    `to_readers`: the recipient may read the database, and so the data shown in errors.
    """
    versions = {
        name: _version(database, life, now_ms, scrub, bitmaps=bitmaps, to_readers=to_readers)
        for name, life in sorted(database.lives.items())
    }
    entry: dict[str, Detail] = {
        "kind": "dataset",
        "active": None if database.served is None else database.served.name,
        "hold": database.hold,
        "held_by": database.held_by,
        "error": database.trouble,
    }
    if not local:
        spread = Spread(database.view, bitmaps=bitmaps)
        entry |= spread.of_database()
        versions = {
            name: _cluster_entry(database, name, spread, now_ms) | version for name, version in versions.items()
        }
    return {**entry, "versions": {**versions}}


def _cluster_entry(database: Database, name: str, spread: Spread, now_ms: int) -> dict[str, Detail]:
    """Return the cluster's part of a version's entry in `status`."""
    life, version = database.lives[name], database.copies.versions.get(name)
    entry = spread.of_version(name)
    if life.state is VersionState.RETIRING:
        entry["kept_by"] = spread.kept_by(name, now_ms)
    if version is not None:
        entry["regrouped"] = version.manifest.identity.regrouped
        entry["refuted"] = list(version.manifest.refuted)
    if (withheld := database.view.withheld(name)) is not None:
        entry["withheld"] = withheld
    waits_until = _waits_until(database, life, spread)
    return entry if waits_until is None else {**entry, "waits_until": waits_until}


def condition(database: Database, now_ms: int, *, to_readers: bool = True) -> dict[str, Detail]:
    """Return the condition of a database for the verdict: the active version, and the deviations of versions.

    `awaits` names the version that should serve and does not; it is empty while that version is unknown.
    """
    served, awaited = database.served, _to_serve(database)
    versions = {
        name: _deviations(database, life, awaited, now_ms, to_readers=to_readers)
        for name, life in sorted(database.lives.items())
    }
    if awaited is not None and database.hold_trouble is not None:
        versions[awaited] = {"nowhere": True}
    deviating: dict[str, Detail] = {name: version for name, version in versions.items() if version}
    details: dict[str, Detail] = {
        "error": database.trouble,
        "hold": database.hold,
        "awaits": awaited,
        "held_by": database.held_by,
        "versions": deviating or None,
    }
    active = None if served is None else served.name
    return {
        "kind": "dataset",
        "active": active,
        **{name: value for name, value in details.items() if value is not None},
    }


def _to_serve(database: Database) -> str | None:
    """Return the version that should serve and does not: the held one, else the newest complete at the source."""
    awaited, served = database.hold, database.served
    if awaited is None:
        if not database.lives and (not database.looked or Spread(database.view).is_active_elsewhere):
            return ""
        complete = (name for name, life in database.lives.items() if _is_complete(life) or life is served)
        awaited = max(complete, default=None if served is not None else max(database.lives, default=None))
    return None if served is not None and awaited == served.name else awaited


def _is_complete(life: Life) -> bool:
    is_short = life.copy is not None and life.copy.shortage is not None
    return life.state is not VersionState.RETIRING and (life.waiting_for is None or is_short)


def _deviations(
    database: Database, life: Life, awaited: str | None, now_ms: int, *, to_readers: bool
) -> dict[str, Detail]:
    """Return the deviations of a version; empty if there are none."""
    entry: dict[str, Detail] = {}
    copy, view, version = life.copy, database.view, database.copies.versions.get(life.name)
    if life.word is VersionWord.BUILDING:
        entry |= {"state": life.word.value, "progress": progress(database.copies.builder, now_ms)}
    elif copy is not None and copy.trouble is not None:
        retry = {} if copy.trouble.lasting else {"again": True}
        entry["error"] = {**copy.trouble.to_map(to_readers=to_readers), **retry}
    if copy is not None and copy.shortage is not None and life.waiting_for is not None:
        entry |= {"needed_bytes": copy.shortage.needed_bytes, "waiting_for": life.waiting_for}
    if life.name == awaited:
        spread = Spread(view)
        until = _waits_until(database, life, spread)
        entry |= {"state": life.word.value, "brought": spread.is_brought_by_others(life.name)}
        withheld = view.withheld(life.name)
        entry |= {} if until is None else {"waits_until": until}
        entry |= {} if withheld is None else {"withheld": withheld}
        entry |= {} if life.waiting_for is None else {"waiting_for": life.waiting_for}
    if version is not None and (version.manifest.first_stray is not None or version.manifest.warnings):
        entry |= _built(version.manifest, to_readers=to_readers)
    entry |= Spread(view).faults(life.name, is_active=life is database.served)
    if "missing" in entry or "under_replicated" in entry:
        switched_ms = database.switching.switched_ms
        entry["switched_ms"] = None if switched_ms is None else now_ms - switched_ms
        entry["at_source"] = life.source is not None
    return entry


def unready(database: Database) -> str:
    """Return why nothing is served, in words, from the state of the newest version."""
    trouble = database.defect_trouble or database.storage_trouble or database.hold_trouble
    if trouble is not None:
        return trouble
    life = _awaited(database)
    if life is None:
        if Spread(database.view).is_active_elsewhere:
            return "other nodes serve it, and this node does not know their partitions yet"
        return database.source_trouble or "the source has no version of it"
    return f"version {life.name} {_describe(database, life)}"


def _describe(database: Database, life: Life) -> str:
    """Describe the state of a version that is not served yet."""
    if life.word is VersionWord.BUILDING:
        progress = database.copies.builder.progress
        done = 0.0 if progress is None else progress.done
        return f"is being built, {done:.0%} done"
    if life.waiting_for is not None:
        return f"waits for {life.waiting_for}"
    if life.copy is not None and life.copy.trouble is not None:
        return f"is in error: {life.copy.trouble.message}"
    waits_until = _waits_until(database, life, Spread(database.view))
    if waits_until is not None:
        return f"waits until {waits_until}"
    turn = "other nodes, because this node has no partition of it" if life.is_elsewhere else "its turn"
    return f"waits for {turn}"


def coming(database: Database) -> bool:
    """True if a version is being built here or elsewhere, or soon will be, and no known obstacle remains."""
    if database.defect_trouble or database.storage_trouble or database.hold_trouble:
        return False
    life = _awaited(database)
    if life is None:
        return database.looking or Spread(database.view).is_active_elsewhere
    if database.view.withheld(life.name) is not None:
        return False
    if life.waiting_for is None and life.word in {VersionWord.SEEN, VersionWord.BUILDING, VersionWord.AVAILABLE}:
        return True
    return Spread(database.view).is_brought_by_others(life.name)


def _waits_until(database: Database, life: Life, spread: Spread) -> str | None:
    """Return the condition that the awaited version waits for, in words; None if it waits only for a local build."""
    if life.state is not VersionState.KNOWN or life is not _awaited(database) or life.waiting_for is not None:
        return None
    copy = life.copy
    if copy is not None and copy.share is None and not copy.open:
        return spread.share_waits_until()
    if life.is_waiting or database.view.may_switch(life.name):
        return None
    if (withheld := database.view.withheld(life.name)) is not None:
        return f"it is accepted: {withheld}"
    return spread.gate_waits_until(life.name)


def _awaited(database: Database) -> Life | None:
    """Return the version that should be served: the held one, else the newest."""
    return database.lives.get(database.hold or "") or database.lives.get(max(database.lives, default=""))


def progress(builder: VersionBuilder, now_ms: int) -> dict[str, Detail]:
    """Return the progress of the build; the remaining time assumes a constant rate."""
    progress = builder.progress
    if progress is None:
        return {"done": 0.0, "read_bytes": 0, "read_records": 0, "written_records": 0, "remaining_s": None}
    elapsed_s = max(0, now_ms - builder.began_ms) / 1000
    remaining_s = round(elapsed_s * (1 - progress.done) / progress.done, 1) if progress.done > 0 else None
    return {
        "done": round(progress.done, 3),
        "read_bytes": progress.read_bytes,
        "read_records": progress.read_records,
        "written_records": progress.written_records,
        "remaining_s": remaining_s,
    }


def _version(
    database: Database, life: Life, now_ms: int, scrub: Scrub, *, bitmaps: bool, to_readers: bool
) -> dict[str, Detail]:
    entry: dict[str, Detail] = {"state": life.word.value}
    copy = life.copy
    if copy is not None and copy.trouble is not None:
        entry["error"] = copy.trouble.to_map(to_readers=to_readers)
    if life.source is not None:
        entry["source_files"] = len(life.source.files)
        entry["source_bytes"] = life.source.size_bytes
    if copy is not None and life.is_waiting:
        entry["waited_s"] = max(0, now_ms - copy.waits_since_ms) // 100 / 10
    if copy is not None and life.waiting_for is not None:
        entry["waiting_for"] = life.waiting_for
        if copy.shortage is not None:
            entry |= {"needed_bytes": copy.shortage.needed_bytes, "free_bytes": copy.shortage.free_bytes}
    if life.word is VersionWord.BUILDING:
        entry["progress"] = progress(database.copies.builder, now_ms)
    version = database.copies.versions.get(life.name)
    if copy is not None and version is not None:
        entry["source_differs"] = copy.differs
        entry |= _built(version.manifest, to_readers=to_readers)
        entry["partitions"] = _partitions_as_bitmap(version.manifest) if bitmaps else _partitions(version.manifest)
        entry["paged"] = any(file.paged for file in version.files if file is not None)
        entry["scrub"] = scrub.report(version)
    return entry


def _built(manifest: VersionManifest, *, to_readers: bool) -> dict[str, Detail]:
    """Return the content of a version, and the evidence for its partition function."""
    stray = manifest.first_stray
    key = {"key": stray.key} if stray is not None and to_readers else {}
    return {
        "digest": manifest.identity.digest,
        "format": manifest.format,
        "compression": manifest.compression,
        "function": manifest.identity.function,
        "alike": list(manifest.alike),
        "voided": manifest.voided,
        "strays": manifest.strays,
        "first_stray": None if stray is None else {**key, "file": stray.file, "offset": stray.offset},
        **({"warnings": list(manifest.warnings)} if manifest.warnings else {}),
        "records": manifest.records,
        "duplicates": manifest.duplicates,
        "size_bytes": manifest.size_bytes,
    }


def _partitions(manifest: VersionManifest) -> Detail:
    return [
        {
            "partition": partition,
            "state": "AVAILABLE",
            "records": file.records,
            "duplicates": file.duplicates,
            "size_bytes": file.size_bytes,
        }
        for partition, file in enumerate(manifest.files)
        if file is not None
    ]


def _partitions_as_bitmap(manifest: VersionManifest) -> Detail:
    here = (partition for partition, file in enumerate(manifest.files) if file is not None)
    return as_bitmap(PartitionSet.of(len(manifest.files), here))
