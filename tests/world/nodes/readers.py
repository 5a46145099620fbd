"""Clients of datasets under load, over the wire: they read from all nodes in every way, and each answer is checked.

The checks are those of `datasets.checkers` for cores on a heap.  On the wire an answer has the name of its version and
no identity: it is right if some content of that name agrees.

A read that fails without need is recorded: the node had answered before in its present life, which goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import GossipKVError, NotReady, TimedOut, Unavailable, UnknownDatabase, UnknownVersion
from tests.world.datasets.answer import Answer
from tests.world.datasets.contents import DATABASE, KEY_NAMES
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.wire.rpc import Value
    from tests.world.datasets.checkers import AnswerCheckers
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

CLIENTS: Final = 3
MAX_PAUSE_S: Final = 0.5  # Between two bursts of one client.
MAX_BURST: Final = 6  # Reads that are sent before the first is answered.
MANY: Final = 25  # Keys of one request; they lie in all partitions.
PAGE: Final = 17
PATIENCE_S: Final = 5.0  # A node gives up after a second.

# Errors that are allowed for a named version, which may not exist yet or any more.
_OF_A_NAMED: Final = (NotReady, UnknownVersion)
_BEFORE_THE_FIRST: Final = (NotReady, UnknownDatabase)


class Choice(NamedTuple):
    """The version that a client asks for."""

    pinned: str | None = None
    least: str | None = None

    @property
    def options(self) -> dict[str, Value]:
        told = {"version": self.pinned, "min_version": self.least}
        return {name: version for name, version in told.items() if version is not None}


class _Read(NamedTuple):
    """A client's read: the node and its life, the version, and the newest version that clients got there before."""

    machine: NodeMachine
    life: int
    choice: Choice
    floor: str | None
    began_s: float


@final
class Readers:
    def __init__(self, cluster: SimulatedCluster, checkers: AnswerCheckers) -> None:
        self._cluster = cluster
        self._checkers = checkers
        self._chance = cluster.streams["readers"]
        # Machines and lives that have answered a request without a version.
        self._serving: set[tuple[str, int]] = set()
        self._newest: str | None = None  # The newest version that any client got.
        self.answers = 0
        self.failures: list[str] = []
        self._forgiven_s = 0.0  # Reads that began before may fail.
        self.names_versions = True  # True if some clients name a version.

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(CLIENTS):
                nursery.start_soon(self._read_on)

    async def _read_on(self) -> None:
        while True:
            await trio.sleep(self._chance.uniform(0, MAX_PAUSE_S))
            running = [machine for machine in self._cluster.machines if machine.runs]
            if running:
                await self._chance.choice((self._get, self._get, self._get_many, self._scan))(
                    self._chance.choice(running)
                )

    def forgive(self) -> None:
        """Excuse the failures of all reads that have begun so far."""
        self.failures.clear()
        self._forgiven_s = trio.current_time()

    async def read_all(self, machine: NodeMachine) -> None:
        await self._many(self._begin(machine, Choice()), KEY_NAMES)

    # The ways to read

    async def _get(self, machine: NodeMachine) -> None:
        """Read some keys, and send all requests before the first answer."""
        read = self._begin(machine, self._choose())
        keys = self._chance.choices(KEY_NAMES, k=self._chance.randint(1, MAX_BURST))
        try:
            with trio.fail_after(PATIENCE_S):
                async with self._cluster.connected(machine) as connection:
                    for key in keys:
                        await connection.send("get", DATABASE, key, read.choice.options)
                    responses = [await connection.read() for _ in keys]
        except (OSError, GossipKVError, trio.TooSlowError) as error:
            self._failed(read, f"get of {keys}", error)
            return
        for response in responses:
            key = keys[response.msgid - 1]
            if response.error is not None:
                self._failed(read, f"get of {key!r}", response.error)
            else:
                assert isinstance(response.result, list)
                value, version = response.result
                self._answered(read, version, [(key, value)])

    async def _get_many(self, machine: NodeMachine) -> None:
        await self._many(self._begin(machine, self._choose()), self._chance.sample(KEY_NAMES, MANY))

    async def _many(self, read: _Read, keys: Sequence[bytes]) -> None:
        told = await self._ask(read, "get_many", DATABASE, list(keys), read.choice.options)
        if told is not None:
            values, version = told
            assert isinstance(values, list)
            self._answered(read, version, list(zip(keys, values, strict=True)))

    async def _scan(self, machine: NodeMachine) -> None:
        """Scan everything page by page; other nodes may serve later pages, in the same version."""
        read = self._begin(machine, self._choose())
        told = await self._ask(read, "scan", DATABASE, {**read.choice.options, "limit": PAGE})
        if told is None:
            return
        at = machine
        found: dict[bytes, Value] = {}
        keys: list[bytes] = []
        records, cursor, version = told
        assert isinstance(version, str)
        while True:
            assert isinstance(records, list)
            for record in records:
                assert isinstance(record, list)
                assert isinstance(record[0], bytes)
                keys.append(record[0])
                found[record[0]] = record[1]
            if cursor is None:
                break
            at = self._chance.choice([at, *(other for other in self._cluster.machines if other.runs)])
            more = self._begin(at, Choice(pinned=version))
            told = await self._ask(more, "scan", DATABASE, {"cursor": cursor, "limit": PAGE})
            if told is None:
                return
            records, cursor, then = told
            if then != version:
                self._checkers.found("cursor", at.name, f"goes on with {then!r} after {version}")
        if keys != sorted(set(keys)):
            self._checkers.found("order", machine.name, f"scans {keys}")
        self._answered(read, version, [(key, found.get(key)) for key in KEY_NAMES])

    async def _ask(self, read: _Read, method: str, *params: Value) -> list[Value] | None:
        try:
            told = await self._cluster.ask(read.machine, method, *params, timeout_s=PATIENCE_S)
        except GossipKVError as error:
            self._failed(read, method, error)
            return None
        assert isinstance(told, list)
        return told

    # Outcomes

    def _begin(self, machine: NodeMachine, choice: Choice) -> _Read:
        return _Read(machine, machine.lives, choice, self._checkers.floor(machine.name), trio.current_time())

    def _choose(self) -> Choice:
        """Most requests name no version; some name a recent one, or the oldest acceptable one."""
        newest = self._newest
        kind = self._chance.random()
        if newest is None or kind < 1 / 2:
            return Choice()
        if kind < 3 / 4:
            return Choice(least=newest)
        before = str(int(newest) - 1)
        return Choice(pinned=self._chance.choice((newest, before))) if self.names_versions else Choice()

    def _answered(self, read: _Read, version: Value, values: list[tuple[bytes, Value]]) -> None:
        assert isinstance(version, str)
        machine, choice = read.machine.name, read.choice
        for key, value in values:
            self.answers += 1
            assert value is None or isinstance(value, bytes)
            self._checkers.answered(Answer(machine, version, None, key, value, choice.pinned, read.floor, choice.least))
        if self._checkers.violations:
            raise Violation(str(self._checkers.violations[0]))
        if choice == Choice():
            self._serving.add((machine, read.life))
        if choice.pinned is None:
            self._newest = max(version, self._newest or version)

    def _failed(self, read: _Read, what: str, error: Exception) -> None:
        machine, choice = read.machine, read.choice
        if not machine.runs or machine.lives != read.life or read.began_s < self._forgiven_s:
            return
        if machine.is_leaving and isinstance(error, Unavailable | OSError):
            return  # A draining node turns new requests away.
        served, is_named = (machine.name, read.life) in self._serving, choice != Choice()
        if isinstance(error, _OF_A_NAMED if is_named else _BEFORE_THE_FIRST) and (is_named or not served):
            return
        if not served and isinstance(error, TimedOut | Unavailable | OSError | trio.TooSlowError | UnknownDatabase):
            return  # The node is still starting.
        named = f" with {choice.options}" if is_named else ""
        self.failures.append(f"{trio.current_time():.3f} s {machine.name}: {what}{named}: {error!r}")
        self._cluster.trace.note("client", "failed", self.failures[-1])
