"""Backups of one table with one partition, written without a cluster."""

from __future__ import annotations

from gossipkv.backup.archive import (
    DELETED,
    PRESENT,
    Archive,
    BackupFile,
    BackupManifest,
    BackupOwner,
    SavedPartition,
    SavedTable,
    backup_name,
)
from gossipkv.storage.builder import SortedFileBuilder
from tests.world.simulated_files import SimulatedFiles

UUID = "ab" * 16
PLACE = "/backups"


def archive(disk=None):
    return Archive(PLACE, {}, SimulatedFiles() if disk is None else disk)


def name_of(number):
    return backup_name(1_700_000_000_000 + number * 1000, number)


def build(archive, backup, file, records):
    """Write a file of a backup; `records` maps each key to its value, or None for a deleted key."""
    with archive.workspace(backup) as place:
        with SortedFileBuilder(place, [file], files=archive._files, memory_bytes=32 << 20) as builder:
            builder.add_all((key, DELETED if value is None else PRESENT + value) for key, value in records.items())
            (report,) = builder.finish()
        archive.publish(place / file, backup, file)
    return BackupFile(f"{backup}/{file}", report.size_bytes, report.records)


def manifest_of(name, files, *, since=None, first=b"", table="t", clock=bytes(16), datasets=None):
    partition = SavedPartition(7, first, clock, tuple(files))
    saved = SavedTable(
        table, "0f" * 16, "range", 3, "murmur3", None, smears=False, ttl_ms=0, retention_ms=0, partitions=(partition,)
    )
    return BackupManifest(name, "2026-11-28T17:00:00+00:00", "c", "n1", since, (saved,), datasets or {})


def begin(archive, number, *, since=None, uuid=UUID):
    archive.begin(name_of(number), BackupOwner(uuid, 1, since))
    return name_of(number)


def write(archive, number, records, *, base=None, finish=True):
    """Write a backup with these changes since `base`, a manifest; return its manifest."""
    name = begin(archive, number, since=base and base.name)
    files = [*base.tables[0].partitions[0].files] if base else []
    if records:
        files.append(build(archive, name, "0.gkv", records))
    manifest = manifest_of(name, files, since=base and base.name)
    if finish:
        archive.finish(manifest, BackupOwner(UUID, 1, None))
    return manifest


def read(archive, manifest):
    """Return all records of a backup, and check its files."""
    for file in manifest.files.values():
        archive.check(file)
    with archive.records(manifest.tables[0].partitions[0].files) as records:
        return [(key, marked[1:]) for key, marked in records]


def names(archive):
    """Return the names of the complete backups."""
    return [*archive.contents().complete]


def tidy(archive, is_gone=lambda _: True):
    """Remove what interrupted backups left."""
    archive.settle()
    for found in archive.contents().unfinished.values():
        if is_gone(found):
            archive.remove(found.name)
