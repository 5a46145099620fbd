"""The truth of versions that appear while a load runs, where it was given as a source.

Answers of a version that nobody knew at the beginning cannot be compared.  When the first of them is told, a process of
low priority (`truth.main`) reads that version as it stands at the source, which is whole by then: a node built
it.  It writes the records in key order, so that the processes that make the load can take them in beside their work.
What came before stays unchecked, and the result says how much that is.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self, final

from gossipkv.loadtest.truth import place_of_versions
from gossipkv.loadtest.worker import Worker, start
from gossipkv.processes.program import how_it_ended

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from gossipkv.loadtest.plan import Plan

MODULE: Final = "gossipkv.loadtest.truth"


class _Reading(NamedTuple):
    """A version that is being read, by whom, and into which file."""

    version: str
    worker: Worker
    file: Path


@final
class LateTruth:
    """Versions that were not known: asked for, read one after the other, told.

    Args:
        plan: Says where they are.
        tell: Is told of each, as an event: what, who, detail.
        take: Is given each that was read: the version, and the file with its records.
    """

    def __init__(self, plan: Plan, tell: Callable[[str, str, str], None], take: Callable[[str, Path], None]) -> None:
        self._database = plan.database
        self._place = place_of_versions(plan)
        self._tell = tell
        self._take = take
        self._asked: dict[str, None] = {}
        self._waiting: list[str] = []
        self._reading: _Reading | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def want(self, version: str) -> None:
        """Values of a version came that nothing is known of; an answer that names none is of no version."""
        if self._place is not None and version and version not in self._asked:
            self._asked[version] = None
            self._waiting.append(version)

    def step(self) -> None:
        """Begin to read the next one, or tell of one that was read; never waits."""
        if self._reading is not None and self._reading.worker.process.poll() is not None:
            self._conclude(self._reading)
            self._reading = None
        if self._reading is None and self._waiting:
            self._reading = self._begin(self._waiting.pop(0))

    def _begin(self, version: str) -> _Reading:
        directory = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gossipkv-loadtest-"))
        worker = start(MODULE, self._stack)
        file = Path(directory, "records")
        order = {"place": self._place, "database": self._database, "version": version, "file": str(file)}
        worker.write(json.dumps({**order, "worn": worker.worn}).encode() + b"\n")
        return _Reading(version, worker, file)

    def _conclude(self, reading: _Reading) -> None:
        said = reading.worker.stdout.readline()
        if not said:
            said = json.dumps({"error": f"its reader {how_it_ended(reading.worker.process.returncode)}"}).encode()
        found = json.loads(said)
        if "error" in found:
            self._tell("truth", reading.version, f"cannot be read: {found['error']}")
            return
        self._tell("truth", reading.version, f"{found['records']:,} records, compared from here on")
        self._take(reading.version, reading.file)
