"""Builds, readings back and merges without a child process: the same steps on the simulated disk, in its threads.

A child is another process with other descriptors; here the node itself does its work, in one step of virtual time.
What a crash leaves in the middle of a build is tested where the disk is (`tests/unit/dataset`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

import trio

from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.build.trouble import BuildError, Trouble
from gossipkv.dataset.scrub.read_back import Outcome, read_back
from gossipkv.errors import GossipKVError, SourceChanged, SourceError
from gossipkv.storage.engine.merge import merge

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.dataset.build.job import BuildJob, Progress
    from gossipkv.dataset.build.parent import Loads
    from gossipkv.dataset.scrub.read_back import Job
    from gossipkv.environment.seam import Environment
    from gossipkv.errors import Corrupt
    from gossipkv.storage.engine.merge import MergeOrder, Output
    from gossipkv.storage.engine.policy import Manner


@final
class BuildHere:
    """Builds in this process, in the place of `build_in_child`."""

    def __init__(self, environment: Environment, file_s: Callable[[], float]) -> None:
        """`file_s`: what reading one file of the source takes."""
        self._environment = environment
        self._file_s = file_s

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
        """Builds; raises what `build_in_child` raises."""
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
    """Reads versions back in this process, in the place of `read_back_in_child`."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    async def __call__(self, job: Job, on_damage: Callable[[Corrupt], None]) -> Outcome:
        """Read back; raises what `read_back_in_child` raises.  A simulated disk has no cache."""
        damaged: list[Corrupt] = []
        counts = await self._environment.threads.run(
            partial(read_back, self._environment.files, job, wait=lambda _: None, on_damage=damaged.append)
        )
        for damage in damaged:
            on_damage(damage)
        return Outcome(*counts, bypassed_cache=True)


@final
class MergeHere:
    """Merges in this process, in the place of `merge_in_child`."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    async def __call__(self, order: MergeOrder, manner: Callable[[], Manner]) -> Output:
        """Merge, as hard as it goes; raises what `merge_in_child` raises."""
        del manner
        return await self._environment.threads.run(merge, self._environment.files, order)
