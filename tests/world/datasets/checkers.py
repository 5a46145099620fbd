"""Checkers of the clients' answers and of the nodes' actions.

Each promise is one method, which names its violation.

truth: each value or miss belongs to the version of its label
monotonic: of the answers of one machine to requests without a version, none is older than one that was there before the
    request; and no answer is older than the oldest version that its request accepts
identities: no two contents are ever answered under one version's name; of two that look alike at the source, each
    machine answers each partition from one only
gates: when a switch begins, each partition has enough owners that were up a moment ago and really hold it
withdrawn: a copy that is removed from a disk is no longer published

The first three judge answers alone, so cores on a heap and whole nodes share them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, final

from tests.world.promises import BrokenPromise
from tests.world.scheduler import MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.placement.identity import VersionIdentity
    from tests.world.datasets.answer import Answer
    from tests.world.datasets.contents import Content, Sources
    from tests.world.datasets.dataset_node import DatasetNode
    from tests.world.datasets.disk import DatasetDisk, Stored
    from tests.world.world import World

MAX_VIOLATIONS = 20


class AnswerCheckers:
    """The checkers of answers, for any world."""

    def __init__(self, sources: Sources, *, now_us: Callable[[], int]) -> None:
        self._sources, self._now_us = sources, now_us
        self._floors: dict[str, str] = {}  # By machine: the newest version that its clients got.
        self._identities: dict[str, VersionIdentity] = {}  # By version: the identity that was answered.
        # By machine, version and partition: the contents that are consistent with all answers.
        self._contents: dict[tuple[str, str, int], frozenset[Content]] = {}
        self.violations: list[BrokenPromise] = []
        self.held: set[str] = set()  # Machines on which an operator has gone back to an older version.

    def floor(self, machine: str) -> str | None:
        """Return the newest version that clients of a machine have got."""
        return self._floors.get(machine)

    def forget(self, machine: str) -> None:
        """Forget the answers of a machine, which has a new disk."""
        self._floors.pop(machine, None)
        self._contents = {known: some for known, some in self._contents.items() if known[0] != machine}

    def found(self, checker: str, machine: str, what: str) -> None:
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(BrokenPromise(checker, self._now_us(), machine, what))

    def result(self) -> dict[str, str]:
        """Return the broken promises, each with its first complaint."""
        told: dict[str, str] = {}
        for violation in self.violations:
            told.setdefault(violation.checker, str(violation))
        return told

    def answered(self, answer: Answer) -> None:
        self._look_at_truth(answer)
        self._look_at_order(answer)
        if answer.identity is not None:
            before = self._identities.setdefault(answer.version, answer.identity)
            if before != answer.identity:
                self.found("identities", answer.machine, f"answers {answer.identity}, after {before}")

    def _look_at_truth(self, answer: Answer) -> None:
        identity, version, key, value = answer.identity, answer.version, answer.key, answer.value
        contents = self._sources.called(version) if identity is None else self._sources.of(identity)
        right = frozenset(one for one in contents if one.version == version and one.value(key) == value)
        asked = answer.pinned or version
        if not right or asked != version:
            expected = [one.value(key) for one in sorted(contents, key=lambda one: one.batch)]
            what = f"{key!r} of {version}, asked for {asked}: {value!r} instead of {expected}"
            self.found("truth", answer.machine, what)
            return
        are_alike = len({one.source.digest for one in contents}) < len(contents)
        part = next(iter(contents)).partition(key) if are_alike else 0
        for who in (answer.machine, *([] if are_alike else ["anybody"])):
            before = self._contents.get((who, version, part), right)
            if not before & right:
                batches = [sorted(one.batch for one in some) for some in (right, before)]
                self.found("identities", answer.machine, f"answers {version} of batch {batches[0]}, after {batches[1]}")
            self._contents[who, version, part] = before & right or right

    def _look_at_order(self, answer: Answer) -> None:
        if answer.least is not None and answer.version < answer.least:
            self.found("monotonic", answer.machine, f"answers {answer.version}, asked for {answer.least} or newer")
        if answer.pinned is not None or answer.machine in self.held:
            return
        if answer.floor is not None and answer.version < answer.floor:
            self.found("monotonic", answer.machine, f"answers {answer.version} after {answer.floor}")
        if answer.least is None:
            self._floors[answer.machine] = max(answer.version, self._floors.get(answer.machine, answer.version))


@final
class DatasetCheckers(AnswerCheckers):
    def __init__(
        self, world: World, sources: Sources, disks: dict[str, DatasetDisk], *, least: int, age_ms: int
    ) -> None:
        """`least` is `min_replication`; `age_ms` is the age up to which a gate counts an answer."""
        super().__init__(sources, now_us=lambda: world.now_us)
        self._world, self._disks = world, disks
        self._least, self._age_us = least, age_ms * MS
        self._ended_us: dict[str, int] = {}  # When a process last ended, by machine.
        world.on_ended.append(lambda machine: self._ended_us.__setitem__(machine.name, world.now_us))

    def switching(self, node: DatasetNode, identity: VersionIdentity) -> None:
        """Check the owners as the sync of ACTIVE begins."""
        owners: Counter[int] = Counter()
        for machine in self._world.machines:
            was_up = self._world.now_us - self._ended_us.get(machine.name, -(1 << 60)) <= self._age_us
            stored = self._disks[machine.name].versions.get(identity.version)
            if stored is not None and stored.identity == identity and (machine.is_up or was_up):
                owners.update(stored.ready)
        unowned = [part for part in range(identity.partitions) if owners[part] < self._least]
        if unowned:
            self.found("gates", node.machine.name, f"switches to {identity.version} without {unowned}")

    def dropping(self, node: DatasetNode, stored: Stored) -> None:
        """Check that a removed copy is withdrawn."""
        if not node.core.is_withdrawn(stored.identity.version, stored.ready):
            self.found("withdrawn", node.machine.name, f"drops {stored.identity.version}, which it publishes")
