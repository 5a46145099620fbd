"""Disks for rigs whose cores wait for syncs: batches are appended, and only synced ones can be read.

Appended batches are synced later: a sync takes all batches that were appended before it begins, and virtual time; then
they can be read, and the process is told, in order.  Two disks have this interface: `StoreDisk` is production's store
over `SimulatedFiles`, `IdealDisk` a dictionary that behaves as the store should, for runs by the thousand.

The faults of a sync, drawn (`crash_soon`, `fail_next`) or aimed (`strike_sync`):

before: the process ends before any of the group is written
within: it ends when some of the group is written; with the power any of that may be forgotten; but batches stay in
    their order, so a prefix of them is left
after: the whole group is durable, but the process was not told
failed: the disk refuses; the process ends, and the rest is as within

A process that ends meanwhile for another reason leaves the same as within.  Opening counts as a sync.  A disk may be
lost (`wipe`), and a machine may come back with the contents of an earlier time (`snapshot`, `go_back`): then its store
has the id of that time, and an older life.
"""

from __future__ import annotations

import enum
import errno
import os
from abc import ABC, abstractmethod
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import GossipKVError
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.shell import Batch
from tests.world.blocking_store import Store
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles
from tests.world.scheduler import MS, SECOND
from tests.world.simulated_files import SimulatedFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.world.machine import Machine
    from tests.world.world import World

Operation = tuple[int, bytes, bytes | None]  # Space, key, and value; None deletes.
Records = dict[int, dict[bytes, bytes]]  # By space.
Contents = SimulatedFiles | tuple[int, int, Records]  # The tuple is an ideal disk's: store, life, and synced records.

MIN_SYNC_US: Final = 300
SYNC_SPREAD_US: Final = 2_700
SLOW: Final = 0.03  # The share of slow syncs, which wait for others; their mean and maximum time follow.
SLOW_US: Final = 30 * MS
MAX_SLOW_US: Final = SECOND // 2
OPENING_STEPS: Final = 12  # The approximate number of disk changes when a store is opened.
OPTIONS: Final = EngineOptions(segment_bytes=64 << 10, table_log=64 << 10, file_bytes=1 << 20, stretch_bytes=1 << 20)

_PLACE: Final = PurePosixPath("/data")


class Aim(enum.Enum):
    """The point of a sync at which the process ends."""

    BEFORE = "before"
    WITHIN = "within"
    AFTER = "after"


class _Strike(NamedTuple):
    """The fault of a sync."""

    aim: Aim | None  # None: the sync fails.
    power: bool
    skip: int  # The number of syncs that succeed first.


class _Writing(NamedTuple):
    """A group of the log that is written, and not synced yet."""

    descriptor: int
    position: int
    ends: bool  # True if the group ends its segment.


class Snapshot(NamedTuple):
    """The contents of a disk at one time."""

    uuid: bytes
    contents: Contents


class RigDisk(ABC):
    """The common part of both disks: time, faults, and reports to the process."""

    def __init__(self, name: str, world: World) -> None:
        self._world = world
        self._chance = world.streams[f"store/{name}"]
        self._time = world.streams[f"store/{name}/time"]
        self._machine: Machine | None = None  # The machine whose process has the store open.
        self._on_synced: Callable[[int], None] | None = None
        self._is_syncing = False
        self._strike: _Strike | None = None
        self.uuid = self._chance.randbytes(16)  # The node's uuid.
        self.number = 0  # Raised whenever the machine gets another disk, or an older one.
        self.syncs = 0  # Successful syncs, openings not counted.
        self._blank()

    # For rigs

    @property
    @abstractmethod
    def store(self) -> int:
        """The id of the store; valid once it is open."""

    @property
    @abstractmethod
    def life(self) -> int:
        """How often the store was opened, by its own count."""

    @abstractmethod
    def get(self, space: int, key: bytes) -> bytes | None:
        """Return the synced value of a key."""

    @abstractmethod
    def keys(self, space: int) -> list[bytes]:
        """Return all synced keys of a space, in order."""

    def open(self, machine: Machine, on_synced: Callable[[int], None]) -> None:
        """Begin another life of the store; `on_synced` is called with the highest synced batch number.

        Raises:
            Crash: the machine crashed meanwhile.
            OSError, GossipKVError: the disk refused.
        """
        self._machine, self._on_synced = machine, on_synced
        strike = self._struck()
        if strike is not None and strike.aim is None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        try:
            self._open_struck(strike)
        except Crash:
            self.process_ended()
            if strike is not None and strike.power:
                self.lose_power()
            raise

    def _open_struck(self, strike: _Strike | None) -> None:
        if strike is None:
            self._open(within=False)
            return
        if strike.aim is not Aim.BEFORE:
            self._open(within=strike.aim is Aim.WITHIN)
        raise Crash

    def open_or_end(self, machine: Machine, on_synced: Callable[[int], None]) -> bool:
        """Open the store, or end the process as its supervisor would see it; return True if it is open."""
        try:
            self.open(machine, on_synced)
        except Crash:
            machine.ended_by_itself("crash")
            return False
        except (OSError, GossipKVError):
            machine.ended_by_itself("disk")
            return False
        return True

    def append(self, operations: Sequence[Operation]) -> int:
        """Append a batch, which is written later; return its number, higher than the one before.

        Raises:
            Overloaded: on `StoreDisk`: much more than a segment waits for one sync.
        """
        assert self._machine is not None, "a store that nobody has open"
        number = self._append(operations)
        if not self._is_syncing:
            self._is_syncing = True
            self._machine.later(0, self._begin)  # Delayed, so that all batches of one event form one group.
        return number

    # A sync

    def _begin(self) -> None:
        assert self._machine is not None
        strike = self._struck()
        if strike is not None and strike.aim is Aim.BEFORE:
            self._end_process(strike)
            return
        try:
            self._write()
        except Crash:
            self._end_process(_Strike(Aim.WITHIN, power=False, skip=0))
            return
        time_us = self._sync_us()
        if strike is not None and strike.aim is Aim.WITHIN:
            self._machine.later(self._time.randrange(time_us), partial(self._end_process, strike))
        else:
            self._machine.later(time_us, partial(self._end, strike))

    def _sync_us(self) -> int:
        time = self._time
        time_us = MIN_SYNC_US + int(time.random() * SYNC_SPREAD_US)
        return time_us + (min(MAX_SLOW_US, int(time.expovariate(1 / SLOW_US))) if time.random() < SLOW else 0)

    def _end(self, strike: _Strike | None) -> None:
        machine = self._machine
        assert machine is not None
        if strike is not None and strike.aim is None:
            self._end_process(strike)
            return
        try:
            number = self._sync()
        except Crash:
            self._end_process(_Strike(Aim.WITHIN, power=False, skip=0))
            return
        self.syncs += 1
        if strike is not None:
            self._end_process(strike)
            return
        self._is_syncing = self._is_waiting()
        if self._is_syncing:
            machine.later(0, self._begin)
        machine.when_free(partial(self._tell, number, machine.life))

    def _tell(self, number: int, life: int) -> None:
        machine, on_synced = self._machine, self._on_synced
        if machine is not None and on_synced is not None and machine.life == life:
            on_synced(number)
            machine.after_input()

    def _end_process(self, strike: _Strike) -> None:
        machine = self._machine
        assert machine is not None
        machine.ended_by_itself("disk" if strike.aim is None else "crash")
        if strike.power or strike.aim is None:  # The system may drop data that it could not write.
            self.lose_power()

    # Faults

    def strike_sync(self, aim: Aim, *, power: bool = False, skip: int = 0) -> None:
        """End the process at a coming sync, or opening; with `power`, the machine loses power too."""
        self._strike = _Strike(aim, power, skip)

    def crash_soon(self, *, power: bool = False) -> None:
        """Crash the machine somewhere around the next sync."""
        self.strike_sync(self._chance.choice(tuple(Aim)), power=power)

    def fail_next(self, *, full: bool) -> None:
        """Fail the next sync; `full` makes no difference to the waiting process."""
        assert isinstance(full, bool)
        self._strike = _Strike(None, power=False, skip=0)

    def calm(self) -> None:
        self._strike = None

    def _struck(self) -> _Strike | None:
        strike = self._strike
        if strike is not None and strike.skip:
            self._strike = strike._replace(skip=strike.skip - 1)
            return None
        self._strike = None
        if strike is not None:
            self._world.struck["disk_error" if strike.aim is None else "crash_at_sync"] += 1
            if strike.power:
                self._world.struck["power_at_sync"] += 1
        return strike

    def process_ended(self) -> None:
        if self._machine is not None:
            self._machine = self._on_synced = None
            self._is_syncing = False
            self._let_go()

    @abstractmethod
    def lose_power(self) -> None:
        """Forget some of the unsynced data."""

    def wipe(self) -> None:
        """Become a new disk: another store, and with a chance of one half another node."""
        assert self._machine is None, "the process is over first"
        if self._chance.random() < 1 / 2:
            self.uuid = self._chance.randbytes(16)
        self.number += 1
        self._blank()

    def snapshot(self) -> Snapshot:
        """Return the disk's contents with some unsynced ones, like an image of a running machine."""
        return Snapshot(self.uuid, self._copy())

    def go_back(self, snapshot: Snapshot) -> None:
        assert self._machine is None, "the process is over first"
        self.uuid = snapshot.uuid
        self.number += 1
        self._put(snapshot.contents)

    # Implementation

    @abstractmethod
    def _blank(self) -> None: ...
    @abstractmethod
    def _open(self, *, within: bool) -> None: ...
    @abstractmethod
    def _append(self, operations: Sequence[Operation]) -> int: ...
    @abstractmethod
    def _write(self) -> None:
        """Begin to sync all appended batches."""

    @abstractmethod
    def _sync(self) -> int:
        """End the begun sync; return the highest synced batch number."""

    @abstractmethod
    def _is_waiting(self) -> bool:
        """Return True if a batch was appended since the sync began."""

    @abstractmethod
    def _let_go(self) -> None: ...
    @abstractmethod
    def _copy(self) -> Contents: ...
    @abstractmethod
    def _put(self, contents: Contents) -> None: ...


@final
class IdealDisk(RigDisk):
    """A disk that behaves as a store over a real one should: some suffix of the unsynced batches is lost."""

    @property
    def store(self) -> int:
        return self._store

    @property
    def life(self) -> int:
        return self._life

    def get(self, space: int, key: bytes) -> bytes | None:
        return self._synced.get(space, {}).get(key)

    def keys(self, space: int) -> list[bytes]:
        return sorted(self._synced.get(space, ()))

    def _blank(self) -> None:
        self._store, self._life = self._chance.getrandbits(64), 0
        self._synced: Records = {}
        self._number = 0
        self._writing: list[Sequence[Operation]] = []
        self._waiting: list[Sequence[Operation]] = []

    def _open(self, *, within: bool) -> None:
        # Within: the opening may have happened or not.
        self._life += 0 if within and self._chance.random() < 1 / 2 else 1

    def _append(self, operations: Sequence[Operation]) -> int:
        self._waiting.append(operations)
        self._number += 1
        return self._number

    def _write(self) -> None:
        self._writing, self._waiting = self._waiting, []

    def _sync(self) -> int:
        _apply(self._writing, self._synced)
        self._writing = []
        return self._number - len(self._waiting)

    def _is_waiting(self) -> bool:
        return bool(self._waiting)

    def _let_go(self) -> None:
        kept = self._chance.randrange(len(self._writing) + 1)
        if kept < len(self._writing):
            self._world.struck["disk_forgot"] += 1
        _apply(self._writing[:kept], self._synced)
        self._writing, self._waiting = [], []

    def lose_power(self) -> None:
        """Do nothing: the loss was drawn when the process ended."""

    def _copy(self) -> tuple[int, int, Records]:
        synced = {space: dict(records) for space, records in self._synced.items()}
        _apply(self._writing[: self._chance.randrange(len(self._writing) + 1)], synced)
        return self._store, self._life, synced

    def _put(self, contents: Contents) -> None:
        assert isinstance(contents, tuple), "another kind of disk"
        self._store, self._life, synced = contents
        self._synced = {space: dict(records) for space, records in synced.items()}


def _apply(batches: Sequence[Sequence[Operation]], contents: Records) -> None:
    for batch in batches:
        for space, key, value in batch:
            records = contents.setdefault(space, {})
            if value is None:
                records.pop(key, None)
            else:
                records[key] = value


@final
class StoreDisk(RigDisk):
    """Production's store, over files that forget unsynced data."""

    def __init__(self, name: str, world: World, *, spaces: int = 1, options: EngineOptions = OPTIONS) -> None:
        """`spaces`: the number of its spaces; `options`: a batch must fit twice into a segment."""
        self._spaces, self._options = spaces, options
        super().__init__(name, world)

    @property
    def store(self) -> int:
        return self._opened.manifest.store

    @property
    def life(self) -> int:
        return self._opened.manifest.life

    def get(self, space: int, key: bytes) -> bytes | None:
        return self._opened.get(space, key)

    def keys(self, space: int) -> list[bytes]:
        found, start = [], b""
        while True:
            records, following = self._opened.scan(space, start)
            found += [key for key, _ in records]
            if following is None:
                return found
            start = following

    @property
    def _opened(self) -> Store:
        assert self._open_store is not None, "a store that nobody has open"
        return self._open_store

    def _blank(self) -> None:
        self._files = SimulatedFiles()
        self._files.make_directory(_PLACE)
        self._files.sync_directory("/")
        self._open_store: Store | None = None
        self._writing: _Writing | None = None

    def _open(self, *, within: bool) -> None:
        step = self._chance.randrange(OPENING_STEPS)
        faults = [Fault(step, Action.CRASH_HALFWAY, kinds=CHANGING)] if within else []
        files = FaultyFiles(self._files, *faults) if within else self._files
        self._open_store = store = Store.open(
            _PLACE / "store", files=files, random=self._chance, options=self._options, maintains=False
        )
        made = Batch()
        while len(store.engine.spaces) + len(made.made) < self._spaces:
            made.new_space(store.reserve_space())
        if made.count:
            store.write(made)
        store.maintain()

    def _append(self, operations: Sequence[Operation]) -> int:
        batch = Batch()
        for space, key, value in operations:
            if value is None:
                batch.delete(space, key)
            else:
                batch.put(space, key, value)
        return self._opened.engine.append(batch)

    def _write(self) -> None:
        group = self._opened.engine.group()
        assert group is not None, "something was appended"
        self._writing = _Writing(group.descriptor, group.position, group.ends)
        self._opened.files.pwrite(group.descriptor, group.data, group.offset)

    def _sync(self) -> int:
        store, writing = self._opened, self._writing
        assert writing is not None
        store.files.sync(writing.descriptor)
        store.engine.synced(writing.position)
        if writing.ends:
            store.files.close(writing.descriptor)
        self._writing = None
        store.maintain()
        return store.engine.synced_position

    def _is_waiting(self) -> bool:
        return self._opened.engine.position > self._opened.engine.synced_position

    def _let_go(self) -> None:
        self._open_store = self._writing = None
        self._files.close_all()

    def lose_power(self) -> None:
        self._files = self._files.power_loss(self._chance.getrandbits(32))
        if self._files.torn:
            self._world.struck["write_torn"] += self._files.torn

    def _copy(self) -> SimulatedFiles:
        return self._files.copied()

    def _put(self, contents: Contents) -> None:
        assert isinstance(contents, SimulatedFiles), "another kind of disk"
        self._files = contents.copied()
