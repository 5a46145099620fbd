"""One run of machines with datasets under drawn faults, from one seed: first safety, then liveness.

The seed draws the number of machines, the replication factor, the versions with their times and sources, a possible
stray, and the faults.  During the faults no node may answer falsely, go back, or drop a published copy.  Then the world
heals: in time the newest version is active everywhere, the old ones are gone, and no read fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, final

from tests.world import faults
from tests.world.datasets.contents import ALIKE, KEY_NAMES, Content
from tests.world.datasets.sharing_cluster import RETIRE_MAX_MS, TERMS, SharingCluster
from tests.world.scheduler import MS, SECOND

if TYPE_CHECKING:
    from collections import Counter

    from tests.world.machine import Machine

READ_EVERY_MS: Final = 50
# A build may first wait for dead members; then partitions may be reassigned twice, and built.
HEALED_S: Final = RETIRE_MAX_MS / 1000 + 120
GONE_S: Final = RETIRE_MAX_MS / 1000 + 60


@final
@dataclass(slots=True)
class DatasetOutcome:
    seed: int
    machines: int
    faults: frozenset[str]
    violations: dict[str, str] = field(default_factory=dict)
    answers: int = 0
    forwarded: int = 0
    switches: int = 0
    trace: str = ""
    struck: dict[str, int] = field(default_factory=dict)


def run(seed: int) -> DatasetOutcome:
    return _Run(seed).run()


@final
class _Run:
    def __init__(self, seed: int) -> None:
        machines = 2 + seed % 4
        terms = TERMS._replace(replication=1 + seed % 3)
        self.cluster = SharingCluster(seed, machines, terms=terms)
        world = self.cluster.world
        self._chance = world.streams["scenario"]
        self._faults = faults.Faults(world, faults.drawn(self._chance))
        self._safety_s = self._chance.uniform(40, 100)
        self._newest = 0
        self._differs = False

    def run(self) -> DatasetOutcome:
        cluster, chance = self.cluster, self._chance
        self._offer()
        cluster.start(within_ms=3_000)
        cluster.readers.begin(READ_EVERY_MS)
        for _ in range(chance.choice((1, 2, 3))):
            cluster.world.scheduler.after(int(chance.uniform(5, self._safety_s) * SECOND), self._offer)
        for _ in range(chance.choice((0, 1, 2, 3))):
            cluster.world.scheduler.after(int(chance.uniform(5, self._safety_s) * SECOND), self._stop)
        cluster.world.scheduler.after(int(chance.uniform(0, 15) * SECOND), self._faults.begin)
        cluster.run(self._safety_s)
        self._faults.end()
        self._heal()
        world = cluster.world
        struck: Counter[str] = world.struck
        return DatasetOutcome(
            world.seed,
            len(cluster.machines),
            self._faults.on,
            cluster.checkers.result(),
            len(cluster.readers.answers),
            cluster.readers.forwarded,
            sum(node.switches for node in cluster.shared.nodes.values()),
            world.trace,
            dict(struck),
        )

    def _stop(self) -> None:
        """Stop a machine as by SIGTERM, whatever the state of a version, and start it again."""
        cluster = self.cluster
        up = [machine for machine in cluster.machines if machine.is_up and not machine.is_paused]
        if not up:
            return
        machine = self._chance.choice(up)
        node = cluster.node(machine)
        if node.membership.leaving_since_ms is None:
            cluster.world.struck["stop"] += 1
            node.leave()
            cluster.world.scheduler.every(SECOND, partial(self._has_to_wait_for, machine))

    def _has_to_wait_for(self, machine: Machine) -> bool:
        if machine.is_up:
            return True
        machine.start()
        return False

    def _offer(self) -> None:
        """Put another version at the source; some machines see it late."""
        self._newest += 1
        chance, cluster = self._chance, self.cluster
        stray = chance.choice(KEY_NAMES) if chance.random() < 1 / 4 else None
        content = Content(str(100 + self._newest), 6, 0, stray, chance.choice((100, 400, 1500)))
        late = [machine for machine in cluster.machines if chance.random() < 1 / 5]
        for machine in late:
            cluster.sources.give(machine, cluster.sources.seen(machine))
        cluster.sources.add(content)
        if chance.random() < 1 / 6:  # One byte differs on one machine, without a visible sign.
            machine = chance.choice(cluster.machines)
            cluster.sources.give(
                machine, {**cluster.sources.seen(machine), content.version: replace(content, batch=ALIKE)}
            )
            self._differs = True
        for machine in late:
            delay_ms = chance.randrange(40_000)
            cluster.world.scheduler.after(delay_ms * MS, partial(cluster.sources.share, machine))

    def _heal(self) -> None:
        cluster = self.cluster
        for machine in cluster.machines:
            cluster.sources.share(machine)
        if self._differs:  # Operators mend this with another version.
            self._newest += 1
            cluster.sources.add(Content(str(100 + self._newest), 6))
        newest = str(100 + self._newest)
        cluster.until(lambda: all(machine.is_up for machine in cluster.machines), "not all are up", within_s=60)
        if cluster.until_active(newest, within_s=HEALED_S):
            cluster.readers.pins = False  # The last copies of old versions may have been lost with a disk.
            cluster.run(2)
            cluster.readers.failures.clear()
            for version in range(101, 100 + self._newest):
                cluster.until_gone(str(version), within_s=GONE_S)
            cluster.must_not_fail()
