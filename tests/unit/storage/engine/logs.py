"""A log that is written as the engine writes it, on any disk, for tests of recovery."""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt
from gossipkv.storage.directories import make_directory
from gossipkv.storage.engine import works
from gossipkv.storage.engine._engine import BATCH, BEGIN, HEADER_BYTES, MARK, NEXT, FrameBuffer
from gossipkv.storage.engine.manifest import LOG, LifeEnd, SegmentName, StoreManifest, segment_path
from gossipkv.storage.engine.recovery import recover, rewrite
from gossipkv.storage.engine.segments import (
    RESERVED_BYTES,
    WRITE,
    SegmentHeader,
    make_segment,
)
from tests.oracle import log as oracle
from tests.world.faulty_files import FaultyFiles
from tests.world.simulated_files import SimulatedFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.storage.engine.recovery import Recovered


ROOT = PurePosixPath("/tables")
STORE = 0xFEED_0000_0000_0001
SEGMENT_BYTES = HEADER_BYTES + 2 * RESERVED_BYTES
LIFE_STEP = 1 << 32


def next_payload(name: SegmentName) -> bytes:
    return struct.pack("<QQ", *name)


def begin_payload(life: int) -> bytes:
    return life.to_bytes(8, "little")


class Disk(SimulatedFiles):
    """A simulated disk that can allocate space."""

    if not hasattr(SimulatedFiles, "allocate"):

        def allocate(self, descriptor: int, offset: int, size_bytes: int) -> None:
            """Allocate as `posix_fallocate` does: in full or, without space, not at all."""
            growth = offset + size_bytes - self.size(descriptor)
            if growth > self.free_bytes("/"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if growth > 0:
                self.pwrite(descriptor, bytes(growth), self.size(descriptor))

        def power_loss(self, seed: int) -> Disk:
            found = super().power_loss(seed)
            found.__class__ = Disk
            return found

        def copied(self) -> Disk:
            found = super().copied()
            found.__class__ = Disk
            return found


class Faulty(FaultyFiles):
    """Faults can strike allocations, too."""

    if not hasattr(FaultyFiles, "allocate"):

        def allocate(self, descriptor: int, offset: int, size_bytes: int) -> None:
            self._perform(
                "allocate",
                f"{size_bytes} at {offset}",
                lambda: self.inner.allocate(descriptor, offset, size_bytes),
            )


class Real(RealFiles):
    if not hasattr(RealFiles, "allocate"):

        def allocate(self, descriptor: int, offset: int, size_bytes: int) -> None:
            os.posix_fallocate(descriptor, offset, size_bytes)


STEPS = frozenset({"allocate", "create", "pwrite", "sync", "sync_directory", "rename", "unlink"})


def payload_of(number: int, size: int = 40) -> bytes:
    return oracle.operation(oracle.VALUE, 1, b"%06d" % number, bytes([number % 256]) * size)


def salt_of(number: int) -> int:
    return (number * 0x9E3779B97F4A7C15 + 1) % 2**64


FIRST = SegmentName(1, salt_of(1))


@dataclass
class Log:
    """A store's log and manifest; `shown` are the batches that a life may have shown, `written` the unsynced ones."""

    files: SimulatedFiles
    segment_bytes: int = SEGMENT_BYTES
    manifest: StoreManifest = field(default_factory=lambda: StoreManifest(STORE, 1, frozenset(), 1, 1, FIRST, FIRST))
    shown: list[tuple[int, bytes]] = field(default_factory=list)
    written: list[tuple[int, bytes]] = field(default_factory=list)
    name: SegmentName = FIRST
    end: int = HEADER_BYTES
    position: int = 0
    synced: int = 0
    next_number: int = 2
    count: int = 0

    @classmethod
    def made(cls, files: SimulatedFiles | None = None, **options: object) -> Log:
        files = Disk() if files is None else files
        log = cls(files, **options)
        make_directory(files, ROOT / LOG)
        make_segment(files, ROOT, log.header(log.name))
        log.put_frame(BEGIN, begin_payload(1))
        log.sync()
        return log

    def header(self, name: SegmentName) -> SegmentHeader:
        return SegmentHeader(STORE, name.number, name.salt, self.manifest.life, self.segment_bytes)

    def put_frame(self, kind: int, payload: bytes, position: int | None = None) -> None:
        self.position = self.position + 1 if position is None else position
        frames = FrameBuffer(self.name.salt)
        frames.append(kind, self.position, self.synced, payload)
        self.write(frames.view())
        self.end += frames.size_bytes

    def write(self, data: bytes | memoryview) -> None:
        descriptor = self.files.open(segment_path(ROOT, self.name.number), WRITE)
        self.files.pwrite(descriptor, data, self.end)
        self.files.close(descriptor)

    def put(self, size: int = 40) -> None:
        """Write an unsynced batch; start the next segment if this one is full."""
        payload = payload_of(self.count, size)
        self.count += 1
        if self.end + 32 + len(payload) + 8 > self.segment_bytes - RESERVED_BYTES:
            self.roll()
        self.put_frame(BATCH, payload)
        self.written.append((self.position, payload))

    def sync(self) -> None:
        """Sync all written batches, so that they may be shown."""
        self.sync_file(self.name.number)
        self.synced = self.position
        self.shown += self.written
        self.written.clear()

    def mark(self) -> None:
        """Write a mark of the synced position, and sync the mark."""
        self.sync()
        self.put_frame(MARK, b"")
        self.sync()

    def roll(self, recycled: int | None = None) -> None:
        named = SegmentName(self.next_number, salt_of(self.next_number))
        make_segment(self.files, ROOT, self.header(named), recycled)
        self.next_number += 1
        self.put_frame(NEXT, next_payload(named))
        self.sync()
        self.name, self.end = named, HEADER_BYTES

    def recover(self) -> tuple[Recovered, list[tuple[int, bytes]]]:
        found: list[tuple[int, bytes]] = []
        recovered = recover(
            self.files, ROOT, self.manifest, lambda _, position, payload: found.append((position, payload))
        )
        return recovered, found

    def reopened(self, files: SimulatedFiles | None = None, between: Callable[[str], None] = lambda step: None) -> Log:
        """Return the store in its next life, on this disk or on the given survivor of a loss of power."""
        log = replace(self, files=self.files if files is None else files, written=[])
        recovered, found = log.recover()
        name = SegmentName(recovered.next_number, salt_of(recovered.next_number))
        life = self.manifest.life + 1
        cut = recovered.cut
        segment = rewrite(log.files, ROOT, recovered, log.header(name)._replace(life=life))
        between("rewritten")
        end = LifeEnd(self.manifest.life, cut.name.number, cut.end, recovered.position, segment.name)
        log.manifest = replace(self.manifest, life=life, lives=(*self.manifest.lives, end))
        between("switched")
        works.remove(log.files, (*recovered.strangers, *recovered.outlived))
        log.files.sync_directory(ROOT / LOG)
        log.shown = found
        log.name, log.end = segment.name, segment.end
        log.next_number = recovered.next_number + 1
        log.synced = recovered.position
        log.put_frame(BEGIN, begin_payload(life), recovered.last_position + LIFE_STEP)
        log.sync()
        return log

    def sync_file(self, number: int) -> None:
        descriptor = self.files.open(segment_path(ROOT, number), WRITE)
        self.files.sync(descriptor)
        self.files.close(descriptor)

    def bytes_of_files(self) -> dict[int, bytes]:
        """Return the files of the log's directory, for the oracle."""
        found = {}
        for entry in self.files.list_directory(ROOT / LOG):
            descriptor = self.files.open(ROOT / LOG / entry.name)
            found[int(entry.name.split(".")[0])] = self.files.pread(descriptor, entry.size_bytes, 0)
            self.files.close(descriptor)
        return found

    def expected(self) -> oracle.Outcome:
        lives = [oracle.LifeEnd(end.number, end.position, end.continued) for end in self.manifest.lives]
        return oracle.recover(self.bytes_of_files(), STORE, self.manifest.recovery_floor, lives)

    def overwrite(self, number: int, offset: int, data: bytes) -> None:
        descriptor = self.files.open(segment_path(ROOT, number), WRITE)
        self.files.pwrite(descriptor, data, offset)
        self.files.sync(descriptor)
        self.files.close(descriptor)

    def replace_file(self, number: int, data: bytes) -> None:
        """Replace a segment's file by one with these bytes, durably."""
        path = segment_path(ROOT, number)
        if number in self.bytes_of_files():
            self.files.unlink(path)
        descriptor = self.files.open(path, WRITE | os.O_CREAT)
        self.files.pwrite(descriptor, data, 0)
        self.files.sync(descriptor)
        self.files.close(descriptor)
        self.files.sync_directory(ROOT / LOG)

    def word_at(self, number: int, offset: int) -> int:
        word: int = struct.unpack_from("<Q", self.bytes_of_files()[number], offset)[0]
        return word


def check(log: Log) -> oracle.Outcome | None:
    """Check that recovery and oracle agree: the same batches and cut, or the same damage (None)."""
    try:
        expected = log.expected()
    except oracle.Damaged as damaged:
        try:
            log.recover()
        except Corrupt as error:
            assert error.file == str(segment_path(ROOT, damaged.number))
            assert damaged.offset is None or error.offset == damaged.offset
            return None
        raise AssertionError(f"{damaged} was not noticed") from None
    recovered, found = log.recover()
    assert found == expected.batches
    assert (recovered.cut.name.number, recovered.cut.end) == (expected.cut, expected.end)
    assert (recovered.position, recovered.last_position) == (expected.position, expected.last_position)
    return expected


def path_of(number: int) -> str:
    return str(segment_path(ROOT, number))


def refused(log: Log) -> tuple[str, int]:
    """Return the file and offset of the damage that both recovery and oracle refuse."""
    assert check(log) is None
    with pytest.raises(Corrupt) as error:
        log.recover()
    return error.value.file, error.value.offset
