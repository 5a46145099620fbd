"""Clients that read, and nodes that forward: partitions that are missing here are asked of their owners in order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.placement.candidates import candidates
from gossipkv.placement.holders import HolderState
from tests.world.datasets.answer import Answer
from tests.world.datasets.contents import KEY_NAMES
from tests.world.datasets.exchange import Exchange
from tests.world.scheduler import MS

if TYPE_CHECKING:
    from random import Random

    from gossipkv.placement.identity import VersionIdentity
    from tests.world.datasets.checkers import DatasetCheckers
    from tests.world.datasets.dataset_node import DatasetNode, Shared
    from tests.world.machine import Machine
    from tests.world.world import World

PROXY_TIMEOUT_MS: Final = 1_000
STAGE_MS: Final = 100
BACKOFF_MS: Final = 50


class Reply(NamedTuple):
    """An owner's answer to a forwarded read."""

    value: bytes | None  # None: the key does not exist.


@final
class Readers:
    def __init__(self, world: World, shared: Shared, checkers: DatasetCheckers, chance: Random) -> None:
        self._world, self._shared, self._checkers = world, shared, checkers
        self._chance = chance
        self.answers: list[Answer] = []
        self.failures: list[str] = []  # Reads without an answer in time.
        self.forwarded = 0
        self.is_over = False
        self.pins = True  # Some clients name the version of a recent answer.

    def begin(self, every_ms: int) -> None:
        def ask() -> bool:
            if self.is_over:
                return False
            machine = self._chance.choice(self._world.machines)
            if machine.core is not None and not machine.is_paused:
                versions = sorted({answer.version for answer in self.answers[-50:] if answer.pinned is None})
                is_pinned = versions and self.pins and self._chance.random() < 1 / 4
                pinned = self._chance.choice(versions) if is_pinned else None
                self.ask(machine, self._chance.choice(KEY_NAMES), pinned)
            return True

        self._world.scheduler.every(every_ms * MS, ask)

    def ask(self, machine: Machine, key: bytes, pinned: str | None = None) -> None:
        node = self._shared.nodes[machine.name]
        version = pinned or node.active
        identity = None if version is None else node.core.identity(version)
        if version is None or identity is None or not node.core.passed(version):
            return
        node.asked(version)
        read = _Read(self, node, identity, key, pinned=pinned, floor=self._checkers.floor(machine.name))
        read.begin()

    @property
    def shared(self) -> Shared:
        return self._shared

    def answered(self, answer: Answer) -> None:
        self.answers.append(answer)
        self._checkers.answered(answer)

    def failed(self, node: DatasetNode, identity: VersionIdentity, key: bytes, pinned: str | None) -> None:
        at_s = self._world.now_us / 1_000_000
        pin = " by its name" if pinned else ""
        self.failures.append(f"{at_s:.3f} s {node.machine.name}: {key!r} of {identity.version}{pin}")


@final
class _Read:
    def __init__(
        self,
        readers: Readers,
        node: DatasetNode,
        identity: VersionIdentity,
        key: bytes,
        *,
        pinned: str | None,
        floor: str | None,
    ) -> None:
        self._readers, self._node, self._identity = readers, node, identity
        self._key, self._pinned, self._floor = key, pinned, floor
        self._part = next(iter(readers.shared.sources.of(identity))).partition(key)
        self._due_ms = node.machine.now_ms + PROXY_TIMEOUT_MS
        self._ahead: list[str] = []

    def begin(self) -> None:
        reply = look_up(self._node, self._identity, self._part, self._key)
        if reply is not None:
            self._finish(reply)
        else:
            self._readers.forwarded += 1
            self._read_list()

    def _read_list(self) -> None:
        node = self._node
        states = {
            name: node.states.get(name, HolderState.DEAD)
            for name, route in node.routes.get(self._identity.wire_id, {}).items()
            if self._part in route.partitions
        }
        self._ahead = candidates(states, (), node.chance)
        self._next()

    def _next(self) -> None:
        if self._node.machine.now_ms >= self._due_ms:
            self._readers.failed(self._node, self._identity, self._key, self._pinned)
        elif self._ahead:
            self._ask(self._ahead.pop(0))
        else:
            self._node.later(BACKOFF_MS * MS, partial(self._read_list))

    def _ask(self, name: str) -> None:
        node = self._node
        route = node.routes.get(self._identity.wire_id, {}).get(name)
        if route is None:
            self._next()
            return

        def serve(machine: Machine) -> Reply | None:
            there = self._readers.shared.nodes[machine.name]
            there.asked(self._identity.version)
            return look_up(there, self._identity, self._part, self._key)

        def then(reply: Reply | None) -> None:
            if reply is None:
                self._next()
            else:
                self._finish(reply)

        Exchange(node.world, node.machine, route.owner.address, serve=serve, then=then).begin(STAGE_MS)

    def _finish(self, reply: Reply) -> None:
        identity, name = self._identity, self._node.machine.name
        value, version = reply.value, identity.version
        self._readers.answered(Answer(name, version, identity, self._key, value, self._pinned, self._floor))


def look_up(node: DatasetNode, identity: VersionIdentity, part: int, key: bytes) -> Reply | None:
    """Return a node's answer for a key; None: the node does not serve that partition of that identity."""
    stored = node.disk.versions.get(identity.version)
    if stored is None or stored.identity != identity or part not in stored.ready:
        return None
    if part in node.core.contradicting(identity, stored.seals):
        return None
    if not identity.regrouped and identity.function in node.core.refuted(identity.digest):
        return None
    content = stored.files[part]
    is_there = identity.regrouped or content.file_of(key) == part  # A build skips strays, so they are missing.
    return Reply(content.value(key) if is_there else None)
