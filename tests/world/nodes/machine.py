"""One machine: an address, a disk, and the lives of its node.

A life ends when the node stops (SIGTERM, or an error of its own), when its process is killed (the kernel tells its
peers, and written data stays), or when the machine loses power (no peer is told, and unsynced data may be lost).
"""

from __future__ import annotations

import signal
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.build.trouble import BuildError, Trouble
from gossipkv.dataset.library import ChildProcesses
from gossipkv.dataset.scrub.read_back import ReadBackOutcome, read_back
from gossipkv.errors import GossipKVError, SourceChanged, SourceError
from gossipkv.node import wiring as node
from gossipkv.storage.engine.merge import merge
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.shell import open_store
from tests.world.nodes.process import Process, SimulatedMemory
from tests.world.nodes.streams import over_streams
from tests.world.simulated_files import SimulatedFiles

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from gossipkv.address import Address
    from gossipkv.dataset.build.job import BuildJob, BuildProgress
    from gossipkv.dataset.build.parent import Loads
    from gossipkv.dataset.scrub.read_back import Job
    from gossipkv.environment.seam import Environment
    from gossipkv.errors import Corrupt
    from gossipkv.node.gossip import Gossiping
    from gossipkv.settings.config import Config
    from gossipkv.storage.engine.merge import MergeOrder, MergeOutput
    from gossipkv.storage.engine.policy import Manner
    from tests.world.faulty_files import Fault
    from tests.world.nodes.network import SimulatedNetwork


@final
class BuildHere:
    """Builds in this process, in place of `build_in_child`."""

    def __init__(self, environment: Environment, file_s: Callable[[], float]) -> None:
        """`file_s` returns the time to read one file of the source."""
        self._environment = environment
        self._file_s = file_s

    async def __call__(
        self,
        job: BuildJob,
        *,
        memory_bytes: int,
        most_lanes: int,
        loads: Loads,
        on_progress: Callable[[BuildProgress], None],
        waits_since_s: float,
    ) -> int:
        assert min(memory_bytes, most_lanes) > 0
        assert loads is not None
        assert waits_since_s >= 0
        await trio.sleep(self._file_s() * len(job.wanted or range(job.partitions)))
        try:
            await self._environment.threads.run(
                perform, job, self._environment.files, BuildResources(memory_bytes, on_progress=on_progress)
            )
        except SourceChanged:
            raise
        except GossipKVError as error:
            details = {name: value for name, value in error.details.items() if isinstance(value, str | int)}
            raise BuildError(Trouble(error.message, details, lasting=isinstance(error, SourceError))) from error
        return 0


@final
class ReadHere:
    """Reads versions back in this process, in place of `read_back_in_child`."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    async def __call__(self, job: Job, on_damage: Callable[[Corrupt], None]) -> ReadBackOutcome:
        """Read a version back, with the errors of `read_back_in_child`.  A simulated disk has no cache."""
        damaged: list[Corrupt] = []
        counts = await self._environment.threads.run(
            partial(read_back, self._environment.files, job, wait=lambda _: None, on_damage=damaged.append)
        )
        for damage in damaged:
            on_damage(damage)
        return ReadBackOutcome(*counts, bypassed_cache=True)


@final
class MergeHere:
    """Merges in this process, in place of `merge_in_child`."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    async def __call__(self, order: MergeOrder, manner: Callable[[], Manner]) -> MergeOutput:
        """Merge at full speed, with the errors of `merge_in_child`."""
        del manner
        return await self._environment.threads.run(merge, self._environment.files, order)


# The options of a node's store: small, so that segments end and runs are merged within a scenario.
OPTIONS: Final = EngineOptions(segment_bytes=256 << 10, table_log=256 << 10, file_bytes=1 << 20, stretch_bytes=1 << 20)


@final
class NodeMachine:
    """A machine with power; its node is not started yet."""

    def __init__(self, network: SimulatedNetwork, config: Config, chance: random.Random, nursery: trio.Nursery) -> None:
        self.config = config  # The config of the next life.
        self.name = config.node or str(config.listen)
        self.disk = SimulatedFiles()
        self.memory = SimulatedMemory()
        self.file_s = 0.0  # The time to read one file of its source.
        self.error: GossipKVError | None = None  # The error with which the latest life ended by itself.
        self.lives = 0
        self.disks = 1  # The number of disks so far.
        self.is_leaving = False  # True once the process was told to end: it takes no more connections.
        self.gossiping: Gossiping | None = None  # The present life's gossip, to publish in its name.
        self.struck = network.struck
        self._network = network
        self._chance = chance
        self._nursery = nursery
        self._process: Process | None = None
        self._faults: tuple[Fault, ...] = ()
        self._crash = self.kill
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._ended.set()
        network.running.add(self.host)

    @property
    def address(self) -> Address:
        return self.config.listen

    @property
    def host(self) -> str:
        return self.config.listen.host

    @property
    def runs(self) -> bool:
        return self._process is not None

    # Lives

    async def start(self) -> None:
        """Begin a life; return when the node is ready, or has ended already."""
        assert self._process is None, f"{self.name} runs"
        self._network.running.add(self.host)
        self._network.trace.note(self.name, "start", self.lives)
        self.lives += 1
        self.is_leaving = False
        self.error = None
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._process = Process(self._network, self.host, self.disk, self._chance, self._die, memory=self.memory)
        self._process.files.strike(*self._faults)
        self._faults = ()
        started = _Started()
        self._nursery.start_soon(self._live, self._process, self._scope, self._ended, started)
        await started.event.wait()

    async def ended(self) -> None:
        await self._ended.wait()

    def tell(self, number: signal.Signals) -> None:
        assert self._process is not None, f"{self.name} is off"
        self._network.trace.note(self.name, "signal", number.name)
        self.is_leaving = self.is_leaving or number == signal.SIGTERM
        self._process.signals.send(number)

    async def stop(self) -> None:
        self.tell(signal.SIGTERM)
        await self.ended()

    def kill(self) -> None:
        self._end(silently=False)

    def lose_power(self) -> None:
        """Switch the machine off until the next start; the disk may forget unsynced data."""
        self._network.running.discard(self.host)
        self._end(silently=True)
        self.disk = self.disk.power_loss(self._chance.getrandbits(32))

    def lose_disk(self) -> None:
        """Give the machine an empty disk.  Requires: no process."""
        assert self._process is None
        self.disk = SimulatedFiles()
        self.disks += 1

    def strike(self, *faults: Fault, power: bool = False) -> None:
        """Set its disk's faults, now or from the next start; `power`: a crash also cuts the power."""
        self._faults = faults
        self._crash = self.lose_power if power else self.kill
        if self._process is not None:
            self._process.files.strike(*faults)

    def _die(self) -> None:
        if self._process is not None and self._process.files.dead:  # The disk ended it, and not a signal.
            self.struck["crash"] += 1
        self._crash()

    def _end(self, *, silently: bool) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end(silently=silently)
            self.gossiping = None
            self._scope.cancel()
            self._ended.set()

    async def _live(self, process: Process, scope: trio.CancelScope, ended: trio.Event, started: _Started) -> None:
        SPEAKER.set(self)
        # Python answers all requests of tables in a third of all lives. A draw would change what seeds do.
        is_fast = process.environment.clock.monotonic_ns() % 3 > 0
        self.struck["slow lives"] += not is_fast
        try:
            with scope:
                await node.run(
                    self.config,
                    process.environment,
                    seams=node.NodeSeams(
                        make_transport=over_streams(process.environment.clock),
                        children=ChildProcesses(
                            BuildHere(process.environment, lambda: self.file_s), ReadHere(process.environment)
                        ),
                        open_store=partial(open_store, options=OPTIONS, run_merge=MergeHere(process.environment)),
                        usage=dict,  # The node reads no resource usage of this host.
                        fast_path=is_fast,
                    ),
                    task_status=started,
                )
        except BaseException as error:
            if not process.is_gone:
                self.error = _ours(error)
            elif isinstance(error, trio.Cancelled):  # The simulation has ended.
                raise
            # Other errors of a killed process while it unwinds do not matter.
        finally:
            if self._process is process:
                self._end(silently=False)
            ended.set()
            started.event.set()


def speaker() -> str:
    machine = SPEAKER.get()
    return "client" if machine is None else machine.name


def _ours(error: BaseException) -> GossipKVError:
    """Return the error that a node ended with; raise any other error, which is a defect."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, GossipKVError):
        return error
    raise error


@final
class _Started:
    """A `trio.TaskStatus` that fires when the node is ready, or has ended."""

    def __init__(self) -> None:
        self.event = trio.Event()

    def started(self, value: object = None) -> None:
        del value
        self.event.set()


SPEAKER: Final[ContextVar[NodeMachine | None]] = ContextVar("SPEAKER", default=None)
"""The machine of the present task; None: a client."""
