"""A disk with a durable part and an appended one, of which a crash loses a suffix."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, final

from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.shell import Batch
from tests.world.blocking_store import Store
from tests.world.simulated_files import SimulatedFiles

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.seen import Position

    Records = Mapping[bytes, bytes | None]
    Heard = tuple[AcceptorId, Position]

PLACE: Final = PurePosixPath("/data")
OPTIONS: Final = EngineOptions(segment_bytes=64 << 10, table_log=64 << 10, file_bytes=1 << 20, stretch_bytes=1 << 20)


class Disk:
    """Batches become durable in the order of their appends, each as a whole."""

    def __init__(self) -> None:
        self.durable: dict[bytes, bytes] = {}
        self.appended: list[tuple[Records, int, set[Heard]]] = []
        self.heard: set[Heard] = set()  # Positions of stores that were heard before a durable batch was appended.

    def append(self, records: Records, serial: int, heard: set[Heard]) -> None:
        """Append a batch; None deletes a key. `serial`: of the acceptor's record among them; 0: there is none."""
        self.appended.append((records, serial, heard))

    def sync(self, count: int) -> int:
        """Sync the first batches; return the last serial among them, or 0."""
        batches, self.appended = self.appended[:count], self.appended[count:]
        for records, _, heard in batches:
            self.heard |= heard
            for key, record in records.items():
                if record is None:
                    self.durable.pop(key, None)
                else:
                    self.durable[key] = record
        return max([serial for _, serial, _ in batches], default=0)

    def crash(self, kept: int) -> None:
        """Lose the appended batches but the first ones."""
        self.sync(kept)
        self.appended = []

    def put(self, records: Mapping[bytes, bytes]) -> None:
        """Become a disk with these records."""
        self.durable, self.appended = dict(records), []

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the durable records with a prefix, without it, in order."""
        return sorted((key[len(prefix) :], record) for key, record in self.durable.items() if key.startswith(prefix))


@final
class StoredDisk(Disk):
    """A disk with production's store, over files that forget unsynced data."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance
        self._files = SimulatedFiles()
        self._files.make_directory(PLACE)
        self._files.sync_directory("/")
        self._open()

    def _open(self) -> None:
        self._store = store = Store.open(
            PLACE / "store", files=self._files, random=self._chance, options=OPTIONS, maintains=False
        )
        if not store.engine.spaces:
            made = Batch()
            made.new_space(store.reserve_space())
            store.write(made)
        store.maintain()
        (self._space,) = store.engine.spaces

    def sync(self, count: int) -> int:
        self._append(count)
        self._store.commit()
        self._store.maintain()
        return super().sync(count)

    def _append(self, count: int) -> None:
        for records, *_ in self.appended[:count]:
            batch = Batch()
            for key, record in records.items():
                if record is None:
                    batch.delete(self._space, key)
                else:
                    batch.put(self._space, key, record)
            self._store.append(batch)

    def crash(self, kept: int) -> None:
        """Lose power when the first batches are written and not synced: some of them are left, in order."""
        self._append(kept)
        group = self._store.engine.group()
        if group is not None:
            self._store.files.pwrite(group.descriptor, group.data, group.offset)
        self._files.close_all()
        self._files = self._files.power_loss(self._chance.getrandbits(32))
        self._open()
        found = self._records()
        for _ in range(kept):
            if self.durable == found:
                break
            super().sync(1)
        assert self.durable == found, "the store has lost a batch before another one"
        self.appended = []

    def put(self, records: Mapping[bytes, bytes]) -> None:
        batch = {**dict.fromkeys(self.durable), **records}
        self.appended = [(batch, 0, set())] if batch else []
        self.sync(len(self.appended))

    def _records(self) -> dict[bytes, bytes]:
        records: dict[bytes, bytes] = {}
        start: bytes | None = b""
        while start is not None:
            page, start = self._store.scan(self._space, start)
            records |= dict(page)
        return records
