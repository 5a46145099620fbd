"""Places for stores: the oracle's, a toy's, a simulated disk, the real disk; and small sizes."""

from __future__ import annotations

import itertools
import random
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import DataError, LimitExceeded, Overloaded
from gossipkv.storage.engine._engine import Batch
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.reading import BelowFloor
from tests.oracle import store as oracle
from tests.unit.storage.engine.toy_store import ToyStore
from tests.world.blocking_store import Store
from tests.world.faulty_files import FaultyFiles
from tests.world.simulated_files import SimulatedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.environment.seam import Files

TINY = EngineOptions(segment_bytes=24 << 10, table_log=48 << 10, file_bytes=16 << 10, stretch_bytes=16 << 10)
DIRECTORY = PurePosixPath("/store")


class OraclePlace:
    """The oracle; a crash keeps any number of unsynced batches."""

    refusals: tuple[type[Exception], ...] = (oracle.Refused,)
    below_floor: type[Exception] = oracle.BelowFloor
    overloaded: type[Exception] = oracle.BelowFloor
    damage: type[Exception] = oracle.BelowFloor
    batch = staticmethod(oracle.Batch)

    def __init__(self) -> None:
        self.history = oracle.History()

    def open(self) -> oracle.Store:
        return oracle.Store(self.history)

    def kill(self, seed: int) -> None:
        waiting = len(self.history.batches) - self.history.synced
        self.history.crash(random.Random(seed).randint(0, waiting))

    lose_power = kill


class DiskPlace:
    files: SimulatedFiles

    def kill(self, seed: int) -> None:
        """Kill the process: all files are closed, and written bytes stay."""
        self.files.close_all()

    def lose_power(self, seed: int) -> None:
        """Lose the power: unsynced bytes may be lost."""
        self.files = self.files.power_loss(seed)


class ToyPlace(DiskPlace, OraclePlace):
    def __init__(self, files: SimulatedFiles | None = None, kind: type[ToyStore] = ToyStore) -> None:
        if files is None:
            files = SimulatedFiles()
            files.make_directory(DIRECTORY)
            files.sync_directory("/")
        self.files, self.kind = files, kind

    def open(self) -> ToyStore:
        return self.kind.open(self.files)

    def elsewhere(self, files: SimulatedFiles, draws: int) -> ToyPlace:
        """Return the place of the same store on another disk."""
        return ToyPlace(files, self.kind)


class StorePlace:
    """The store, on any disk; each opening draws other salts."""

    refusals: tuple[type[Exception], ...] = (ValueError, LimitExceeded)
    below_floor: type[Exception] = BelowFloor
    overloaded: type[Exception] = Overloaded
    damage: type[Exception] = DataError
    batch = staticmethod(Batch)

    def __init__(
        self, files: Files, directory: Path | PurePosixPath, options: EngineOptions, draws: Iterator[int]
    ) -> None:
        self.files, self.directory, self.options, self.draws = files, directory, options, draws

    def open(self) -> Store:
        """Open the store, or make it the first time; maintenance runs only on request."""
        chance = random.Random(next(self.draws))
        return Store.open(self.directory, files=self.files, random=chance, options=self.options, maintains=False)


class SimulatedPlace(DiskPlace, StorePlace):
    def __init__(self, options: EngineOptions = TINY, files: Files | None = None, draws: int = 1) -> None:
        StorePlace.__init__(self, files or SimulatedFiles(), DIRECTORY, options, itertools.count(draws))

    def elsewhere(self, files: SimulatedFiles, draws: int) -> SimulatedPlace:
        """Return the place of the same store on another disk."""
        return SimulatedPlace(self.options, files, draws)


class RealPlace(StorePlace):
    """A real directory, whose power never fails: written bytes stay."""

    def __init__(self, directory: Path, options: EngineOptions = TINY) -> None:
        super().__init__(FaultyFiles(RealFiles()), Path(directory) / "store", options, itertools.count(1))
        self.opened: list[Store] = []

    def open(self) -> Store:
        self.opened.append(super().open())
        return self.opened[-1]

    def kill(self, seed: int) -> None:
        """Refuse further writes to its files, and close them as the system does."""
        self.files.dead = True
        self.opened.pop()._let_go()
        self.files = FaultyFiles(RealFiles())

    lose_power = kill
