"""The node's side of a build: start it in a child process, follow its progress, and report its end.

A child (`build_child`) serves build after build as long as any runs or waits, so that a queue of small builds starts
one interpreter.  However a build ends (done, an error, a killed process, cancellation), none of its processes remains.
A child whose build was not followed to its end is not used again.
"""

from __future__ import annotations

import contextlib
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, final

import trio

from gossipkv.dataset.build.disk_space import Reservations
from gossipkv.dataset.build.job import BuildJob, BuildOrder, BuildProgress
from gossipkv.dataset.build.trouble import BuildError, Trouble
from gossipkv.errors import LocalError, SourceChanged
from gossipkv.processes import child
from gossipkv.processes.niceness import give_way, take_back
from gossipkv.processes.program import ProgramLines, how_it_ended, order_line
from gossipkv.processes.usage import activity_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# Observe a child from outside this often; each look takes a fraction of a millisecond.
WATCH_PERIOD_S = 0.5

# A build may use this much processor time, plus this part of the time its version has waited, before it gives way to
# reads.  The first is more than a small build takes in all.
FREE_S = 1.0
FREE_PART = 0.1


class Build(Protocol):
    """Builds versions: `build_in_child`, or a simulation's replacement."""

    async def __call__(
        self,
        job: BuildJob,
        *,
        memory_bytes: int,
        most_lanes: int,
        loads: Loads,
        on_progress: Callable[[BuildProgress], None],
        waits_since_s: float,
    ) -> int: ...


class BuildSlot:
    """A place among the builds that may run at once."""

    def __init__(self, limiter: trio.CapacityLimiter) -> None:
        self._limiter = limiter
        self._given_up = False

    def give_up(self) -> None:
        """Let another build run as well from now on."""
        if not self._given_up:
            self._given_up = True
            self._limiter.release_on_behalf_of(self)


class Loads:
    """The limits shared by all builds of a node: parallel builds, bytes read per second, and disk space."""

    def __init__(self, max_parallel: int, bytes_per_second: int, priority: str = "auto") -> None:
        self._limiter = trio.CapacityLimiter(max_parallel)
        self._bytes_per_second = bytes_per_second
        self._priority = priority
        self.disk_space = Reservations()
        self.reads_begin = trio.Event()  # Set once this node serves something.
        self.children = Children()
        self._pending = 0  # Builds that run or wait.
        self._running = 0
        self._changed = trio.Event()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[BuildSlot]:
        """Wait until a build may run, and count it while it does."""
        slot = BuildSlot(self._limiter)
        self._pending += 1
        try:
            await self._limiter.acquire_on_behalf_of(slot)
            self._count(1)
            try:
                yield slot
            finally:
                slot.give_up()
                self._count(-1)
        finally:
            self._pending -= 1
            if not self._pending:
                await self.children.end()

    @property
    def idle(self) -> int:
        """Return how many more builds may run now."""
        return max(0, int(self._limiter.total_tokens) - self._running)

    def share_bytes_per_second(self) -> int:
        """Return the bytes per second that one build may read; 0: unlimited."""
        return self._bytes_per_second and max(1, self._bytes_per_second // max(1, self._running))

    def give_way(self, processor_s: float, waited_s: float) -> bool:
        """True if a build that used `processor_s`, of a version that waited `waited_s`, gives way to others.

        A build below its part has normal priority, whatever else runs; the part grows with the wait of its version.
        """
        if self._priority == "auto":
            return self.reads_begin.is_set() and processor_s >= FREE_S + FREE_PART * waited_s
        return self._priority == "low"

    async def share_changed(self) -> None:
        """Wait until a build begins or ends."""
        await self._changed.wait()

    def _count(self, by: int) -> None:
        self._running += by
        assert self._running >= 0, "each that began ends once"
        self._changed.set()
        self._changed = trio.Event()


async def build_in_child(
    job: BuildJob,
    *,
    memory_bytes: int,
    most_lanes: int = 1,
    loads: Loads,
    on_progress: Callable[[BuildProgress], None],
    waits_since_s: float,
) -> int:
    """Build `job` in a child process; return its peak memory in bytes once the result is durable in `job.directory`.

    `on_progress` gets the child's progress, and the same progress again while the build lacks a processor, but not
    while it waits for its source.  `waits_since_s` is the time, by Trio's clock, since which the version waits.

    Raises:
        SourceChanged: the source differs from when it was listed.
        BuildError: the reason, and whether a retry may help.
    """
    async with loads.children.borrow() as builder:
        watch = _Watch(builder.pid, loads, waits_since_s, BuildProgress(0, job.source_bytes, 0, 0), on_progress)
        async with trio.open_nursery() as nursery:
            order = BuildOrder(job, memory_bytes, loads.share_bytes_per_second(), builder.leash, most_lanes)
            nursery.start_soon(_instruct, builder, order, loads)
            nursery.start_soon(watch.run)
            end = await builder.hear(watch)
            nursery.cancel_scope.cancel()
    match end.outcome:
        case {"done": int(peak_bytes)} if end.status == 0:
            return peak_bytes
        case _:
            raise _failure(end)


class _End(NamedTuple):
    outcome: dict[str, object] | None  # Its last message.
    status: int | None  # Exit status of its process, or of the child if that has ended.
    errors: list[bytes]  # Lines on standard error.


@final
class BuilderProcess:
    """A child that builds one version after the other."""

    def __init__(self, process: trio.Process, leash: int, stack: AsyncExitStack) -> None:
        self.pid = process.pid
        self.leash = leash
        self.is_idle = True
        self._process = process
        self._stack = stack

    @classmethod
    async def start(cls) -> Self:
        """Start a child.  Raises OSError if no process can be started."""
        async with AsyncExitStack() as stack:
            running = child.running("gossipkv.dataset.build.build_child")
            process, leash = await stack.enter_async_context(running)
            return cls(process, leash, stack.pop_all())

    @property
    def is_alive(self) -> bool:
        """True if another build can be ordered."""
        return self._process.poll() is None

    async def tell(self, line: bytes) -> None:
        self.is_idle = False
        assert self._process.stdin is not None
        await self._process.stdin.send_all(line)

    async def hear(self, watch: _Watch) -> _End:
        errors: list[bytes] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child.collect_errors, self._process, errors)
            outcome, status = await self._listen(watch)
            # The output before the process's end has arrived; the task above reads it at this checkpoint.
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        return _End(outcome, status, errors)

    async def end(self) -> None:
        await self._stack.aclose()

    async def _listen(self, watch: _Watch) -> tuple[dict[str, object] | None, int | None]:
        assert self._process.stdout is not None
        lines = ProgramLines()
        outcome: dict[str, object] | None = None
        async for part in self._process.stdout:
            for line in lines.feed(bytes(part)):
                try:
                    message = json.loads(line)
                except ValueError:  # Something in the child has printed a line that is not ours.
                    continue
                match message:
                    case {"started": int(process)}:
                        watch.build = process
                        watch.look()
                    case {"progress": [*numbers]}:
                        watch.hear(BuildProgress(*numbers))
                    case {"ended": int(status)}:
                        self.is_idle = True
                        return outcome, status
                    case {}:
                        outcome = message
        return outcome, await self._process.wait()


@final
class Children:
    """The children of a node: one for each running build, and idle ones that are needed again soon."""

    def __init__(self) -> None:
        self._idle: list[BuilderProcess] = []

    @contextlib.asynccontextmanager
    async def borrow(self) -> AsyncIterator[BuilderProcess]:
        """Provide a child for one build.  Raises OSError if none can be started."""
        idle = None
        while self._idle and idle is None:
            idle = self._idle.pop()
            if not idle.is_alive:
                await idle.end()
                idle = None
        process = idle or await BuilderProcess.start()
        try:
            yield process
        finally:
            if process.is_idle:
                self._idle.append(process)
            else:
                await process.end()

    async def end(self) -> None:
        """End the idle children, when no build runs or waits."""
        while self._idle:
            await self._idle.pop().end()


@final
class _Watch:
    """Observes a build from outside: sets its priority by its processor time, and reports progress while it waits."""

    def __init__(
        self,
        builder: int,
        loads: Loads,
        waits_since_s: float,
        progress: BuildProgress,
        on_progress: Callable[[BuildProgress], None],
    ) -> None:
        self.build: int | None = None  # Process of the build, once it has one.
        self._child = builder
        self._loads = loads
        self._waits_since_s = waits_since_s
        self._progress = progress
        self._on_progress = on_progress
        self._gives_way = False

    def hear(self, progress: BuildProgress) -> None:
        self._progress = progress
        self._on_progress(progress)

    async def run(self) -> None:
        while True:
            await trio.sleep(WATCH_PERIOD_S)
            if self.look():
                self._on_progress(self._progress)

    def look(self) -> bool:
        """Set the build's priority; return True if it is held up."""
        if self.build is None:  # The child keeps its priority, since all later builds inherit it.
            return activity_of(self._child).is_held_up
        activity = activity_of(self.build)
        wanted = self._loads.give_way(activity.processor_s, trio.current_time() - self._waits_since_s)
        if wanted != self._gives_way and (give_way if wanted else take_back)(self.build):
            self._gives_way = wanted
        return activity.is_held_up


async def _instruct(builder: BuilderProcess, order: BuildOrder, loads: Loads) -> None:
    with contextlib.suppress(trio.BrokenResourceError):  # The child is gone; `BuilderProcess.hear` notices as well.
        share = order.bytes_per_second
        await builder.tell(order_line(order))
        while True:
            await loads.share_changed()
            if loads.share_bytes_per_second() != share:
                share = loads.share_bytes_per_second()
                await builder.tell(b"%d\n" % share)


def _failure(end: _End) -> LocalError:
    match end.outcome:
        case {"error": ["SourceChanged", str(message), dict(details)]}:
            return SourceChanged(message, details)
        case {"error": [str(kind), str(message), dict(details)]}:
            return BuildError(Trouble(message, details, lasting=kind in {"SourceError", "LimitExceeded"}))
    how = how_it_ended(end.status)
    last_line = child.last_line(end.errors)
    return BuildError(
        Trouble(f"the build process {how}{last_line}", {"reason": last_line} if last_line else {}, lasting=False)
    )
