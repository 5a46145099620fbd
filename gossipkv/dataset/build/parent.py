"""The node's side of a build: starts the child, hears its progress, and answers for its end.

However this ends (done, an error, a killed child, cancellation) no process is left (`processes.child`).
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Protocol, final

import trio

from gossipkv.dataset.build.child import Order
from gossipkv.dataset.build.disk_space import Reservations
from gossipkv.dataset.build.job import BuildJob, Progress
from gossipkv.dataset.lifecycle.copy_states import Trouble
from gossipkv.errors import GossipKVError, LocalError, SourceChanged
from gossipkv.processes import child
from gossipkv.processes.activity import activity_of
from gossipkv.processes.niceness import give_way, take_back
from gossipkv.processes.program import how_it_ended
from gossipkv.processes.talk import Lines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# A fixed one: glibc raises it after each large buffer that is freed, and then keeps holes as large as the blocks of a
# SequenceFile, one and a half times what is in use.
MMAP_THRESHOLD_BYTES = 1 << 20

# How often a child is looked at from outside: a fraction of a millisecond each time.
WATCH_PERIOD_S = 0.5

# Of a processor's time a build may have so much before it gives way to reads, and this part of the time that its
# version has waited: the first is what a small one takes in all, most of it to start an interpreter.
FREE_S = 1.0
FREE_PART = 0.1


class BuildError(LocalError):
    """A build ended with an error."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message, {**trouble.details})
        self.trouble = trouble


def trouble_of(error: GossipKVError | OSError) -> Trouble:
    """What a version in ERROR says about it."""
    if isinstance(error, BuildError):
        return error.trouble
    if isinstance(error, OSError):
        named = "" if error.filename is None else f"{error.filename}: "
        return Trouble(f"the process that builds it cannot be started: {named}{error.strerror}", lasting=False)
    details = {name: value for name, value in error.details.items() if isinstance(value, str | int)}
    return Trouble(error.message, details, lasting=False)


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
        self._running = 0
        self._changed = trio.Event()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """Waits until a build may run, and counts it while it does."""
        turn = Turn(self._limiter)
        await self._limiter.acquire_on_behalf_of(turn)
        self._count(1)
        try:
            yield turn
        finally:
            turn.give_up()
            self._count(-1)

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
    """Builds `job` in a child process; when it returns, the result is durable in `job.directory`.

    `on_progress` is called with what the child says, and again with the same while it is held up for want of a
    processor; so not while it waits for its source.  `waits_since_s` is since when, by Trio's clock, the version waits.

    Returns the most memory that the child and its lanes have had, in bytes.

    Raises:
        SourceChanged: the source is not what it was when it was listed.
        BuildError: says why, and whether trying again may help.
    """
    environ = {"MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD_BYTES)}
    async with child.running("gossipkv.dataset.build.child", environ) as (process, worn):
        watch = _Watch(process.pid, loads, waits_since_s, Progress(0, job.source_bytes, 0, 0), on_progress)
        watch.look()
        async with trio.open_nursery() as nursery:
            errors: list[bytes] = []
            order = Order(job, memory_bytes, loads.share_bytes_per_second(), worn, most_lanes)
            nursery.start_soon(_instruct, process, order, loads)
            nursery.start_soon(watch.run)
            nursery.start_soon(child.collect_errors, process, errors)
            outcome = await _listen(process, watch.hear)
            await process.wait()
            nursery.cancel_scope.cancel()
    match outcome:
        case {"done": int(peak_bytes)} if process.returncode == 0:
            return peak_bytes
        case _:
            raise _failure(process, outcome, errors)


@final
class _Watch:
    """The child as it is seen from outside: it gets its priority by what it had, and speaks for it while it cannot."""

    def __init__(
        self,
        process: int,
        loads: Loads,
        waits_since_s: float,
        progress: Progress,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._process = process
        self._loads = loads
        self._waits_since_s = waits_since_s
        self._progress = progress
        self._on_progress = on_progress
        self._gives_way = False

    def hear(self, progress: Progress) -> None:
        """Take what the child has said."""
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
        activity = activity_of(self._process)
        wanted = self._loads.give_way(activity.processor_s, trio.current_time() - self._waits_since_s)
        if wanted != self._gives_way and (give_way if wanted else take_back)(self._process):
            self._gives_way = wanted
        return activity.is_held_up


async def _instruct(process: trio.Process, order: Order, loads: Loads) -> None:
    assert process.stdin is not None
    with contextlib.suppress(trio.BrokenResourceError):  # The child is gone; `_listen` sees that too.
        share = order.bytes_per_second
        await process.stdin.send_all(order.to_line())
        while True:
            await loads.share_changed()
            if loads.share_bytes_per_second() != share:
                share = loads.share_bytes_per_second()
                await process.stdin.send_all(b"%d\n" % share)


async def _listen(process: trio.Process, on_progress: Callable[[Progress], None]) -> dict[str, object] | None:
    """The last word of the child, or None when it ended without one."""
    assert process.stdout is not None
    lines = Lines()
    outcome: dict[str, object] | None = None
    async for part in process.stdout:
        for line in lines.feed(bytes(part)):
            try:
                message = json.loads(line)
            except ValueError:  # Not from us: something in the child has printed.
                continue
            if "progress" in message:
                on_progress(Progress(*message["progress"]))
            else:
                outcome = message
    return outcome


def _failure(process: trio.Process, outcome: dict[str, object] | None, errors: list[bytes]) -> LocalError:
    match outcome:
        case {"error": ["SourceChanged", str(message), dict(details)]}:
            return SourceChanged(message, details)
        case {"error": [str(kind), str(message), dict(details)]}:
            return BuildError(Trouble(message, details, lasting=kind in {"SourceError", "LimitExceeded"}))
    how = how_it_ended(process.returncode)
    return BuildError(Trouble(f"the process that built it {how}{child.last_line(errors)}", {}, lasting=False))
