"""Jobs: work that goes on while clients ask for its progress, request by request.

A request names its job by an id that the client has drawn. The first one starts the job; each one waits for the end,
but at most as long as it says, and is answered with the progress or the result. A job for which nobody has asked for
`LEASE_S` is cancelled: its client was interrupted or lost. A client that repeats the whole command goes on with the job
that runs, or gets a result that nobody has heard while it is still so.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.environment.ticks import rest
from gossipkv.errors import GossipKVError, Overloaded, Unavailable, Unknown, first_of
from gossipkv.log import Log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gossipkv.wire.rpc import Value

LEASE_S: Final = 30.0
MAX_JOBS: Final = 4
MAX_KEPT: Final = 16  # Results that are kept for a client that asks again.


@dataclass
class Progress:
    """The progress of a backup, a restore or a verification, for the client that waits."""

    table: str = ""
    done: int = 0  # Partitions, or files.
    total: int = 0
    records: int = 0
    bytes: int = 0


class Work(NamedTuple):
    """The work of a job."""

    key: tuple[object, ...]  # The same work has the same key.
    progress: Progress
    run: Callable[[], Awaitable[dict[str, Value]]]
    is_still_so: Callable[[], bool] = lambda: False  # True if the result is still right some time after the end.


@dataclass(eq=False)
class _Job:
    work: Work
    is_heard: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
    result: dict[str, Value] | GossipKVError | None = None
    waiting: int = 0
    lease_until: float = 0.0


@final
class Jobs:
    """The jobs of a node."""

    def __init__(self) -> None:
        self._jobs: dict[bytes, _Job] = {}  # By id, ended ones too.
        self._nursery: trio.Nursery | None = None
        self._log = Log("gossipkv.node")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run jobs until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            while True:
                await rest(LEASE_S / 10)
                for job in self._jobs.values():
                    if not job.waiting and trio.current_time() > job.lease_until:
                        job.scope.cancel()

    async def ask(self, id_: bytes, wait_s: float, wanted: Work) -> Value:
        """Return the result of a job, or its progress after `wait_s`; the first request starts it.

        Raises:
            GossipKVError: the job has failed.
            Overloaded: too many jobs run here.
        """
        job = self._jobs[id_] = self._jobs.get(id_) or self._same(wanted) or self._start(wanted)
        job.waiting += 1
        try:
            with trio.move_on_after(wait_s):
                await job.ended.wait()
        finally:
            job.waiting -= 1
            job.lease_until = trio.current_time() + LEASE_S
        job.is_heard = job.result is not None
        if isinstance(job.result, GossipKVError):
            raise job.result
        if job.result is not None:
            return {"state": "done", **job.result}
        return {"state": "running", **asdict(job.work.progress)}

    def cancel(self, id_: bytes) -> None:
        """Cancel a job; without effect if there is none of that id."""
        if id_ in self._jobs:
            self._jobs[id_].scope.cancel()

    def runs(self) -> int:
        """Return the number of jobs that run."""
        return len({job for job in self._jobs.values() if not job.ended.is_set()})

    def _same(self, wanted: Work) -> _Job | None:
        for job in reversed(self._jobs.values()):
            if job.work.key != wanted.key:
                continue
            if not job.ended.is_set() or (isinstance(job.result, dict) and not job.is_heard and job.work.is_still_so()):
                return job
        return None

    def _start(self, wanted: Work) -> _Job:
        if self._nursery is None:
            raise Unavailable("this node is starting or stopping")
        if self.runs() >= MAX_JOBS:
            raise Overloaded(f"{MAX_JOBS} backups and restores already run at this node; wait until one ends")
        ended = [kept for kept, job in self._jobs.items() if job.ended.is_set()]
        for kept in ended[: max(0, len(ended) - MAX_KEPT + 1)]:
            del self._jobs[kept]
        job = _Job(wanted)
        self._nursery.start_soon(self._work, job)
        return job

    async def _work(self, job: _Job) -> None:
        try:
            with job.scope:
                job.result = await job.work.run()
            job.result = job.result or Unknown("the job was cancelled")
        except* GossipKVError as errors:
            job.result = first_of(errors)
        except* Exception as errors:  # noqa: BLE001  # A defect ends the job, and not the node.
            self._log.error("job_failed", exc_info=errors)
            job.result = Unknown("a defect of the node ended the job; the node's log has the traceback")
        finally:
            job.ended.set()
