"""What is in a store, for people: by its manifest and the names of its files, without opening it.

A node may have it open meanwhile: the manifest is replaced as a whole, and a file that is gone by now is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.storage.engine.manifest import LOG, RUNS, read_manifest

if TYPE_CHECKING:
    from pathlib import PurePath

    from gossipkv.environment.seam import Files


def describe_store(files: Files, directory: PurePath) -> dict[str, str | int]:
    """Return what the store in `directory` consists of.

    Raises:
        FileNotFoundError: there is no store.
        Corrupt, UnsupportedFormat: its manifest is damaged, or too new.
        OSError: the system refused.
    """
    manifest = read_manifest(files, directory)
    segments = [entry.size_bytes for entry in files.list_directory(directory / LOG) if entry.kind == "file"]
    named = list(manifest.run_files)
    there = {entry.name for entry in files.list_directory(directory / RUNS)} if named else set()
    return {
        "store": f"{manifest.store:016x}",
        "life": manifest.life,
        "spaces": len(manifest.spaces),
        "young_runs": len(manifest.young),
        "run_files": len(named),
        "missing_run_files": sum(file.name not in there for file in named),
        "records": sum(file.records for file in named),
        "run_bytes": sum(file.size_bytes for file in named),
        "dropped_bytes": manifest.dropped_bytes,
        "segments": len(segments),
        "log_bytes": sum(segments),
        "recovered_from": manifest.recovery_floor.number,
        "log_kept_from": manifest.log_floor.number,
    }
