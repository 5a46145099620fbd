"""The node's side of a build: has a child build it, hears its progress, and answers for its end.

A child (`child`) serves one build after the other as long as any runs or waits, so that a queue of small ones starts
one interpreter.  However a build ends (done, an error, a killed process, cancellation) no process of it is left, and a
child whose build was not heard to its end is not used again.
"""

from __future__ import annotations

import contextlib
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, final

import trio

from gossipkv.dataset.build.disk_space import Reservations
from gossipkv.dataset.build.job import BuildJob, Order, Progress
from gossipkv.dataset.build.trouble import BuildError, Trouble
from gossipkv.errors import LocalError, SourceChanged
from gossipkv.processes import child
from gossipkv.processes.niceness import give_way, take_back
from gossipkv.processes.program import Lines, how_it_ended
from gossipkv.processes.usage import activity_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# How often a child is looked at from outside: a fraction of a millisecond each time.
WATCH_PERIOD_S = 0.5

# Of a processor's time a build may have so much before it gives way to reads, and this part of the time that its
# version has waited: the first is more than what a small one takes in all.
FREE_S = 1.0
FREE_PART = 0.1


class Build(Protocol):
    """How versions are built: `build_in_child`, or what a simulation has in its place."""

    async def __call__(
        self,
        job: BuildJob,
        *,
        memory_bytes: int,
        most_lanes: int,
        loads: Loads,
        on_progress: Callable[[Progress], None],
        waits_since_s: float,
    ) -> int:
        """Build, as `build_in_child` does."""
        ...


class Turn:
    """A place among the builds that may run at once."""

    def __init__(self, limiter: trio.CapacityLimiter) -> None:
        self._limiter = limiter
        self._given_up = False

    def give_up(self) -> None:
        """Somebody else may run as well from now on."""
        if not self._given_up:
            self._given_up = True
            self._limiter.release_on_behalf_of(self)


class Loads:
    """What all builds of a node share: how many may run, how many bytes a second they read together, and the disk."""

    def __init__(self, max_parallel: int, bytes_per_second: int, priority: str = "auto") -> None:
        self._limiter = trio.CapacityLimiter(max_parallel)
        self._bytes_per_second = bytes_per_second
        self._priority = priority
        self.disk_space = Reservations()
        self.reads_begin = trio.Event()  # Set once something is served here.
        self.children = Children()
        self._here = 0  # Those that run or wait.
        self._running = 0
        self._changed = trio.Event()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """Waits until a build may run, and counts it while it does."""
        turn = Turn(self._limiter)
        self._here += 1
        try:
            await self._limiter.acquire_on_behalf_of(turn)
            self._count(1)
            try:
                yield turn
            finally:
                turn.give_up()
                self._count(-1)
        finally:
            self._here -= 1
            if not self._here:
                await self.children.end()

    @property
    def idle(self) -> int:
        """How many more may run now."""
        return max(0, int(self._limiter.total_tokens) - self._running)

    def share_bytes_per_second(self) -> int:
        """What one build may read; 0: as fast as it goes."""
        return self._bytes_per_second and max(1, self._bytes_per_second // max(1, self._running))

    def give_way(self, processor_s: float, waited_s: float) -> bool:
        """Whether a build that had so much of a processor, of a version that has waited so long, lets others go first.

        One that gets less than its part has normal priority, however much else runs: the longer its version has waited,
        the more it may have.
        """
        if self._priority == "auto":
            return self.reads_begin.is_set() and processor_s >= FREE_S + FREE_PART * waited_s
        return self._priority == "low"

    async def share_changed(self) -> None:
        """Returns when a build has begun or ended."""
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
    on_progress: Callable[[Progress], None],
    waits_since_s: float,
) -> int:
    """Builds `job` in a process of its own; when it returns, the result is durable in `job.directory`.

    `on_progress` is called with what the child says, and again with the same while it is held up for want of a
    processor; so not while it waits for its source.  `waits_since_s` is since when, by Trio's clock, the version waits.

    Returns the most memory that the process has had, in bytes.

    Raises:
        SourceChanged: the source is not what it was when it was listed.
        BuildError: says why, and whether trying again may help.
    """
    async with loads.children.one() as child_:
        watch = _Watch(child_.pid, loads, waits_since_s, Progress(0, job.source_bytes, 0, 0), on_progress)
        async with trio.open_nursery() as nursery:
            order = Order(job, memory_bytes, loads.share_bytes_per_second(), child_.leash, most_lanes)
            nursery.start_soon(_instruct, child_, order, loads)
            nursery.start_soon(watch.run)
            end = await child_.hear(watch)
            nursery.cancel_scope.cancel()
    match end.outcome:
        case {"done": int(peak_bytes)} if end.status == 0:
            return peak_bytes
        case _:
            raise _failure(end)


class _End(NamedTuple):
    """How a build has ended."""

    outcome: dict[str, object] | None  # Its last word.
    status: int | None  # Of its process, or of the child if that has ended.
    said: list[bytes]  # On standard error.


@final
class Child:
    """A child that builds one version after the other."""

    def __init__(self, process: trio.Process, leash: int, stack: AsyncExitStack) -> None:
        self.pid = process.pid
        self.leash = leash
        self.is_idle = True
        self._process = process
        self._stack = stack

    @classmethod
    async def start(cls) -> Self:
        """Raises OSError when no process can be started."""
        async with AsyncExitStack() as stack:
            running = child.running("gossipkv.dataset.build.build_child")
            process, leash = await stack.enter_async_context(running)
            return cls(process, leash, stack.pop_all())

    @property
    def is_alive(self) -> bool:
        """Whether another build can be ordered."""
        return self._process.poll() is None

    async def tell(self, line: bytes) -> None:
        """Order a build, or another pace."""
        self.is_idle = False
        assert self._process.stdin is not None
        await self._process.stdin.send_all(line)

    async def hear(self, watch: _Watch) -> _End:
        """Hear the build that was ordered until its end."""
        errors: list[bytes] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child.collect_errors, self._process, errors)
            outcome, status = await self._listen(watch)
            # What its process has said before its end is there, and the task above reads it before this one goes on.
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        return _End(outcome, status, errors)

    async def end(self) -> None:
        """Leave nothing of it, nor of what it builds."""
        await self._stack.aclose()

    async def _listen(self, watch: _Watch) -> tuple[dict[str, object] | None, int | None]:
        assert self._process.stdout is not None
        lines = Lines()
        outcome: dict[str, object] | None = None
        async for part in self._process.stdout:
            for line in lines.feed(bytes(part)):
                try:
                    message = json.loads(line)
                except ValueError:  # Not from us: something in the child has printed.
                    continue
                match message:
                    case {"started": int(process)}:
                        watch.build = process
                        watch.look()
                    case {"progress": [*numbers]}:
                        watch.hear(Progress(*numbers))
                    case {"ended": int(status)}:
                        self.is_idle = True
                        return outcome, status
                    case {}:
                        outcome = message
        return outcome, await self._process.wait()


@final
class Children:
    """The children of a node: one for each build that runs, and those that have built and are needed again soon."""

    def __init__(self) -> None:
        self._idle: list[Child] = []

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[Child]:
        """Have one for a build.  Raises OSError when none can be started."""
        idle = None
        while self._idle and idle is None:
            idle = self._idle.pop()
            if not idle.is_alive:
                await idle.end()
                idle = None
        found = idle or await Child.start()
        try:
            yield found
        finally:
            if found.is_idle:
                self._idle.append(found)
            else:
                await found.end()

    async def end(self) -> None:
        """No build runs, and none waits."""
        while self._idle:
            await self._idle.pop().end()


@final
class _Watch:
    """A build as it is seen from outside: it gets its priority by what it had, and speaks for it while it cannot."""

    def __init__(
        self,
        child_: int,
        loads: Loads,
        waits_since_s: float,
        progress: Progress,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self.build: int | None = None  # Its process, once it has one.
        self._child = child_
        self._loads = loads
        self._waits_since_s = waits_since_s
        self._progress = progress
        self._on_progress = on_progress
        self._gives_way = False

    def hear(self, progress: Progress) -> None:
        """Take what it has said."""
        self._progress = progress
        self._on_progress(progress)

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await trio.sleep(WATCH_PERIOD_S)
            if self.look():
                self._on_progress(self._progress)

    def look(self) -> bool:
        """Give it its priority; whether it is held up."""
        if self.build is None:  # The child keeps its priority, which all builds to come begin with.
            return activity_of(self._child).is_held_up
        activity = activity_of(self.build)
        wanted = self._loads.give_way(activity.processor_s, trio.current_time() - self._waits_since_s)
        if wanted != self._gives_way and (give_way if wanted else take_back)(self.build):
            self._gives_way = wanted
        return activity.is_held_up


async def _instruct(child_: Child, order: Order, loads: Loads) -> None:
    with contextlib.suppress(trio.BrokenResourceError):  # The child is gone; whoever hears it sees that too.
        share = order.bytes_per_second
        await child_.tell(order.to_line())
        while True:
            await loads.share_changed()
            if loads.share_bytes_per_second() != share:
                share = loads.share_bytes_per_second()
                await child_.tell(b"%d\n" % share)


def _failure(end: _End) -> LocalError:
    match end.outcome:
        case {"error": ["SourceChanged", str(message), dict(details)]}:
            return SourceChanged(message, details)
        case {"error": [str(kind), str(message), dict(details)]}:
            return BuildError(Trouble(message, details, lasting=kind in {"SourceError", "LimitExceeded"}))
    how = how_it_ended(end.status)
    said = child.last_line(end.said)
    return BuildError(
        Trouble(f"the process that built it {how}{said}", {"reason": said} if said else {}, lasting=False)
    )
