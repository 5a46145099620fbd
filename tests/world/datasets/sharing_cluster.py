"""A world of machines with datasets, the operations on it, and the outcomes that must follow."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.cluster.terms import Terms
from gossipkv.gossip.core import Gossip
from gossipkv.gossip.profile import LOCAL
from gossipkv.node.gossip import ShardIdTimer
from tests.world.datasets.checkers import DatasetCheckers
from tests.world.datasets.contents import Content, Sources
from tests.world.datasets.dataset_node import DatasetNode, Settings, Shared
from tests.world.datasets.disk import DatasetDisk
from tests.world.datasets.readers import Readers
from tests.world.gossip.members import SETTLE_MS, claim, program
from tests.world.gossip.rig import rig_of
from tests.world.scheduler import MS, SECOND
from tests.world.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.node.identity import NodeRecord
    from tests.world.gossip.program import Core
    from tests.world.machine import Machine

TERMS: Final = Terms(
    replication=2,
    min_replication=1,
    reassign_after_ms=20_000,
    retire_after_ms=15_000,
    probe_interval_ms=LOCAL.probe_interval_ms,
    grace_ms=3_000,
)
RETIRE_MAX_MS: Final = 120_000
LOOK_US: Final = 200 * MS


@final
class SharingCluster:
    def __init__(self, seed: int, machines: int, *, terms: Terms = TERMS, told: bool = True, expected: int = 0) -> None:
        """`told`: all machines but the first are told to join it; otherwise `join` must name a peer first.

        `expected`: `expected_members`; 0 means unknown.
        """
        self.world = World(seed)
        self.sources = Sources()
        disks: dict[str, DatasetDisk] = {}
        least, age_ms = terms.min_replication, terms.probe_interval_ms
        self.checkers = DatasetCheckers(self.world, self.sources, disks, least=least, age_ms=age_ms)
        self.shared = Shared(self.sources, self.checkers)
        self.shared.disks = disks
        self.readers = Readers(self.world, self.shared, self.checkers, self.world.streams["readers"])
        self._disk_numbers: dict[str, int] = {}
        self._settings = Settings(terms, SETTLE_MS, RETIRE_MAX_MS, expected)
        for _ in range(machines):
            self.add(told=told)

    @property
    def machines(self) -> list[Machine]:
        return self.world.machines

    def add(self, *, told: bool = True) -> Machine:
        machine = self.world.add(f"m{len(self.machines)}", program(LOCAL))
        if told:
            machine.joins += [other.address for other in self.machines[:-1]][:2]
        if told and machine is not self.machines[0] and not self.machines[0].joins:
            # The launcher does the same, so that no machine waits for another to start.
            self.machines[0].joins.append(machine.address)
        self.shared.disks[machine.name] = DatasetDisk()
        rig_of(machine).claim = partial(self._claim, machine)
        return machine

    def _claim(self, machine: Machine, core: Core, kept: NodeRecord) -> DatasetNode:
        if self._disk_numbers.setdefault(machine.name, machine.disk.number) != machine.disk.number:
            # The machine has a new disk, and is therefore a new node.
            self._disk_numbers[machine.name] = machine.disk.number
            self.shared.disks[machine.name] = DatasetDisk()
            self.checkers.forget(machine.name)
        place = claim(core, kept, self._settings.expected)
        assert isinstance(core, Gossip)
        assert isinstance(place, ShardIdTimer)
        node = DatasetNode(self.world, machine, core, place=place, settings=self._settings, shared=self.shared)
        self.shared.nodes[machine.name] = node
        return node

    def node(self, machine: Machine) -> DatasetNode:
        """Return the datasets of the process on a machine."""
        assert machine.core is not None, machine.name
        return self.shared.nodes[machine.name]

    def start(self, *, within_ms: int = 1_000) -> None:
        """Start all stopped machines within `within_ms`."""
        chance = self.world.streams["joins"]
        for machine in self.machines:
            if not machine.is_up:
                self.world.scheduler.after(int(chance.random() * within_ms * MS), machine.start)

    def offer(self, version: str, *, partitions: int = 6, **more: int | bytes | None) -> Content:
        """Put a version at the shared source."""
        content = content_of(version, partitions, **more)
        self.sources.add(content)
        return content

    def run(self, seconds: float) -> None:
        self.world.run(int(seconds * SECOND))

    def active(self) -> list[str | None]:
        """Return the active version of each running machine."""
        return [self.node(machine).active for machine in self.machines if machine.is_up]

    def until(self, holds: Callable[[], bool], what: str, *, within_s: float) -> bool:
        """Run until `holds` is true; record a violation if that takes longer than `within_s`."""
        end_us = self.world.now_us + int(within_s * SECOND)
        while not holds():
            if self.world.now_us >= end_us:
                self.checkers.found("in_time", "-", f"{what}; active: {self.active()}")
                return False
            self.world.run(LOOK_US)
        return True

    def until_active(self, version: str, *, within_s: float = 60) -> bool:
        """Run until a version is active on all running machines."""
        return self.until(lambda: set(self.active()) == {version}, f"{version} is not active", within_s=within_s)

    def until_gone(self, version: str, *, within_s: float = 60) -> bool:
        """Run until no running machine has a copy of a version."""

        def is_gone() -> bool:
            up = [machine for machine in self.machines if machine.is_up]
            return not any(version in self.shared.disks[machine.name].versions for machine in up)

        return self.until(is_gone, f"{version} is not gone", within_s=within_s)

    def must_not_fail(self) -> None:
        """Record a violation if a read has failed since the last call."""
        if self.readers.failures:
            self.checkers.found("no_read_fails", "-", "; ".join(self.readers.failures[:3]))
        self.readers.failures.clear()


def content_of(version: str, partitions: int = 6, **more: int | bytes | None) -> Content:
    batch, file_ms, stray = more.get("batch", 0), more.get("file_ms", 500), more.get("stray")
    assert isinstance(batch, int)
    assert isinstance(file_ms, int)
    assert stray is None or isinstance(stray, bytes)
    return Content(version, partitions, batch, stray, file_ms)
