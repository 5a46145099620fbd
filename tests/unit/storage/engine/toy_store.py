"""A correct store of fifty lines, with planted faults, that tests the judges of stores; each start rewrites its log."""

from __future__ import annotations

import ast
import struct
import zlib
from pathlib import PurePosixPath

from gossipkv.environment.seam import READ, WRITE_NEW
from tests.oracle import store as oracle

HEAD = struct.Struct("<IIQ")
DIRECTORY = PurePosixPath("/store")
MAX_FRAMES = 1_000  # A life has at most so many: the next life's positions are above them.


class ToyStore(oracle.Store):
    """A log of frames of checksum, size, position and batch; the state is in memory."""

    @classmethod
    def open(cls, files):
        """Read the log up to the first invalid frame, write it into a new file, and continue there."""
        names = [entry.name for entry in files.list_directory(DIRECTORY) if entry.name.isdigit()]
        data = read(files, max(names)) if names else b""
        store, at = cls(oracle.History()), 0
        store.files, store.frames = files, []
        while at + HEAD.size <= len(data):
            checksum, size, position = HEAD.unpack_from(data, at)
            payload = data[at + HEAD.size : at + HEAD.size + size]
            if not store.holds(checksum, data[at + 4 : at + HEAD.size + size]):
                break
            at += HEAD.size + size
            store.take(position, ast.literal_eval(payload.decode()))
        store.history.sync()
        number = int(max(names, default="0")) + 1
        store.begin(b"".join(store.frames), f"{number:04d}")
        for name in names:
            files.unlink(DIRECTORY / name)
        store.history.last_position = number * MAX_FRAMES
        return store

    def holds(self, checksum, covered):
        return zlib.crc32(covered) == checksum and len(covered) > 12

    def take(self, position, operations):
        self.frames.append(frame(position, operations))
        self.history.append(position, operations)
        made = [space for kind, space, _, _ in operations if kind == oracle.NEW_SPACE]
        self.history.next_space = max([self.history.next_space, *(space + 1 for space in made)])

    def begin(self, data, name):
        beside = DIRECTORY / "new"
        if any(entry.name == "new" for entry in self.files.list_directory(DIRECTORY)):
            self.files.unlink(beside)
        self.descriptor = self.files.open(beside, WRITE_NEW)
        self.files.pwrite(self.descriptor, data, 0)
        self.end = len(data)
        self.files.sync(self.descriptor)
        self.files.rename(beside, DIRECTORY / name)
        self.files.sync_directory(DIRECTORY)

    def commit(self):
        """Write all waiting batches in one piece, and sync them."""
        waiting = self.history.batches[self.history.synced :]
        data = b"".join(frame(*entry) for entry in waiting)
        if data:
            self.files.pwrite(self.descriptor, data, self.end)
            self.end += len(data)
            self.files.sync(self.descriptor)
        super().commit()


def frame(position, operations):
    payload = repr(list(operations)).encode()
    covered = HEAD.pack(0, len(payload), position)[4:] + payload
    return struct.pack("<I", zlib.crc32(covered)) + covered


def read(files, name):
    descriptor = files.open(DIRECTORY / name, READ)
    try:
        return files.pread(descriptor, files.size(descriptor), 0)
    finally:
        files.close(descriptor)


class WithoutSync(ToyStore):
    """Acknowledges written batches without a sync."""

    def commit(self):
        files, self.files = self.files, Careless(self.files, {"sync"})
        super().commit()
        self.files = files


class WithoutSyncOfNames(ToyStore):
    """Forgets to sync names, too."""

    def begin(self, data, name):
        files, self.files = self.files, Careless(self.files, {"sync_directory"})
        super().begin(data, name)
        self.files = files


class ShowsWhatIsNotSynced(ToyStore):
    """Shows recovered batches before they are synced again."""

    def begin(self, data, name):
        files, self.files = self.files, Careless(self.files, {"sync", "sync_directory"})
        super().begin(data, name)
        self.files = files


class BelievesAnything(ToyStore):
    """Accepts frames with any checksum."""

    def holds(self, checksum, covered):
        return len(covered) > 12


class AcknowledgesFirst(ToyStore):
    """Shows a batch before it is written."""

    def commit(self):
        waiting = self.history.batches[self.history.synced :]
        self.history.sync()
        if waiting:
            data = b"".join(frame(*entry) for entry in waiting[:-1])
            self.files.pwrite(self.descriptor, data, self.end)
            self.end += len(data)
            self.files.sync(self.descriptor)


class Careless:
    """Files of which some operations do nothing."""

    def __init__(self, files, forgotten):
        self.files, self.forgotten = files, forgotten

    def __getattr__(self, name):
        return (lambda *_: None) if name in self.forgotten else getattr(self.files, name)


PLANTED = (WithoutSync, WithoutSyncOfNames, ShowsWhatIsNotSynced, BelievesAnything, AcknowledgesFirst)
