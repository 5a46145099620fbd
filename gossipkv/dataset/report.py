"""What people and scripts are told about a database: the maps of the methods `databases` and `status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.dataset.lifecycle import State

if TYPE_CHECKING:
    from gossipkv.dataset.database import Database
    from gossipkv.dataset.lifecycle import Life
    from gossipkv.dataset.local.manifest import Manifest
    from gossipkv.dataset.scrub.scrub import Scrub
    from gossipkv.errors import Detail


def summary(database: Database) -> dict[str, Detail]:
    """One entry of `databases`; `version` and `partitions` are nil while nothing is served."""
    serving = database.serving
    return {
        "name": database.name,
        "kind": "dataset",
        "version": None if serving is None else serving.name,
        "partitions": None if serving is None else serving.partitions,
    }


def status(database: Database, now_ms: int, scrub: Scrub) -> dict[str, Detail]:
    """The entry of a database in `status`."""
    serving = database.serving
    return {
        "kind": "dataset",
        "active": None if serving is None else serving.name,
        "hold": database.hold,
        "error": database.trouble,
        "versions": {name: _version(database, database.lives[name], now_ms, scrub) for name in sorted(database.lives)},
    }


def unready(database: Database) -> str:
    """Why nothing is served, in words: what became of the newest version."""
    trouble = database.defect_trouble or database.storage_trouble or database.hold_trouble
    if trouble is not None:
        return trouble
    life = _awaited(database)
    if life is None:
        return database.source_trouble or "the source shows no version of it"
    if life.state is State.BUILDING:
        done = 0.0 if database.builder.progress is None else database.builder.progress.done
        return f"version {life.name} is being built, {done:.0%} done"
    if life.waiting_for is not None:
        return f"version {life.name} waits for {life.waiting_for}"
    if life.trouble is not None:
        return f"version {life.name} is in error: {life.trouble.message}"
    return f"version {life.name} waits for its turn"


def coming(database: Database) -> bool:
    """Whether that is being built, or about to be, and nothing is known that stands in its way."""
    if database.defect_trouble or database.storage_trouble or database.hold_trouble:
        return False
    life = _awaited(database)
    if life is None:
        return database.looking
    return life.waiting_for is None and life.state in {State.SEEN, State.BUILDING, State.AVAILABLE}


def _awaited(database: Database) -> Life | None:
    """The version that is to be served: the one that is held, else the newest."""
    return database.lives.get(database.hold or "") or database.lives.get(max(database.lives, default=""))


def progress(database: Database, now_ms: int) -> dict[str, Detail]:
    """How far the build is; the remaining time assumes that it goes on as it went."""
    known = database.builder.progress
    if known is None:
        return {"done": 0.0, "read_bytes": 0, "read_records": 0, "written_records": 0, "remaining_s": None}
    elapsed_s = max(0, now_ms - database.builder.began_ms) / 1000
    remaining_s = round(elapsed_s * (1 - known.done) / known.done, 1) if known.done > 0 else None
    return {
        "done": round(known.done, 3),
        "read_bytes": known.read_bytes,
        "read_records": known.read_records,
        "written_records": known.written_records,
        "remaining_s": remaining_s,
    }


def _version(database: Database, life: Life, now_ms: int, scrub: Scrub) -> dict[str, Detail]:
    told: dict[str, Detail] = {"state": life.state.value}
    if life.trouble is not None:
        told["error"] = {"message": life.trouble.message, **life.trouble.details}
    if life.source is not None:
        told["source_files"] = len(life.source.files)
        told["source_bytes"] = life.source.size_bytes
    if life.is_waiting:
        told["waited_s"] = max(0, now_ms - life.waits_since_ms) // 100 / 10
    if life.waiting_for is not None:
        told["waiting_for"] = life.waiting_for
        if life.shortage is not None:
            told |= {"needed_bytes": life.shortage.needed_bytes, "free_bytes": life.shortage.free_bytes}
    if life.state is State.BUILDING:
        told["progress"] = progress(database, now_ms)
    version = database.versions.get(life.name)
    if version is not None:
        told["source_differs"] = life.differs
        told |= _built(version.manifest)
        told["scrub"] = scrub.report(version)
    return told


def _built(manifest: Manifest) -> dict[str, Detail]:
    """What is in a version, and how it came to be grouped as it is."""
    stray = manifest.first_stray
    return {
        "digest": manifest.identity.digest,
        "format": manifest.format,
        "compression": manifest.compression,
        "function": manifest.identity.function,
        "alike": list(manifest.alike),
        "voided": manifest.voided,
        "strays": manifest.strays,
        "first_stray": None if stray is None else {"key": stray.key, "file": stray.file, "offset": stray.offset},
        "records": manifest.records,
        "duplicates": manifest.duplicates,
        "size_bytes": manifest.size_bytes,
        "partitions": [
            {
                "partition": partition,
                "state": "AVAILABLE",
                "records": file.records,
                "duplicates": file.duplicates,
                "size_bytes": file.size_bytes,
            }
            for partition, file in enumerate(manifest.files)
            if file is not None
        ],
    }
