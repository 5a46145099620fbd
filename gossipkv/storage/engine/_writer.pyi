from typing import final

from gossipkv.storage.engine._log import Batch
from gossipkv.storage.engine._memtable import Memtable
from gossipkv.storage.engine.manifest import SegmentName
from gossipkv.storage.engine.segments import Segment

LIFE_GAP: int

def batch_cost(batch: Batch) -> int: ...

@final
class Active:
    name: SegmentName
    descriptor: int
    size_bytes: int
    offset: int
    first: int
    def __init__(self, name: SegmentName, descriptor: int, size_bytes: int, offset: int, first: int) -> None: ...
    def until(self, position: int) -> Segment: ...

@final
class Planned: ...

@final
class Group:
    descriptor: int
    offset: int
    data: memoryview
    position: int
    ends: bool

@final
class Written:
    batches: list[Batch]
    size_bytes: int
    closed: Segment | None

@final
class Writer:
    active: Active
    prepared: Active | None
    position: int
    synced: int
    waiting_bytes: int
    cost: int
    memtable: Memtable
    spaces: set[int]
    def __init__(self, active: Active, memtable: Memtable, spaces: set[int], *, life: int, position: int) -> None: ...
    @property
    def share(self) -> float: ...
    @property
    def is_waiting(self) -> bool: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def mark_due(self) -> bool: ...
    def fits(self, size_bytes: int, cost: int) -> bool: ...
    def open(self, size_bytes: int) -> None: ...
    def plan_plain(self, batch: Batch) -> int: ...
    def plan(self, batch: Batch) -> int: ...
    def turn(self) -> None: ...
    def mark(self) -> None: ...
    def group(self) -> Group | None: ...
    def written(self, position: int) -> Written: ...
    def stop(self) -> None: ...
