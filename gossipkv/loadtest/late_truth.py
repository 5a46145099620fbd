"""The truth of versions that appear during a load, if the truth was given as a source.

Answers of a version that was unknown at the beginning cannot be compared.  At the first such answer, a low-priority
process (`truth.main`) reads the version at the source, where it is complete, since a node built it.  The process writes
the records in key order, so that the load processes can merge them during their work.  Earlier answers stay unchecked,
and the result counts them.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.loadtest.truth import place_of_versions
from gossipkv.processes.program import how_it_ended
from gossipkv.processes.worker import Worker, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from gossipkv.loadtest.plan import LoadPlan

MODULE: Final = "gossipkv.loadtest.truth"


class _TruthReading(NamedTuple):
    """A version being read, its reader, and the file for its records."""

    version: str
    worker: Worker
    file: Path


@final
class LateTruth:
    """Reads unknown versions one after the other on request, and reports them.

    Args:
        plan: Gives their place.
        tell: Gets an event for each: what, who, detail.
        take: Gets each version that was read, with the file of its records.
        stack: Ends the reader, and removes its files.
    """

    def __init__(
        self,
        plan: LoadPlan,
        tell: Callable[[str, str, str], None],
        take: Callable[[str, Path], None],
        stack: ExitStack,
    ) -> None:
        self._database = plan.database
        self._place = place_of_versions(plan)
        self._tell = tell
        self._take = take
        self._asked: dict[str, None] = {}
        self._waiting: list[str] = []
        self._reading: _TruthReading | None = None
        self._stack = stack

    def want(self, version: str) -> None:
        """Request a version that answered and is unknown; an empty name is no version."""
        if self._place is not None and version and version not in self._asked:
            self._asked[version] = None
            self._waiting.append(version)

    def step(self) -> None:
        """Start the next reading, or report a finished one, without waiting."""
        if self._reading is not None and self._reading.worker.process.poll() is not None:
            self._conclude(self._reading)
            self._reading = None
        if self._reading is None and self._waiting:
            self._reading = self._begin(self._waiting.pop(0))

    def _begin(self, version: str) -> _TruthReading:
        directory = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gossipkv-loadtest-"))
        worker = start(MODULE, self._stack)
        file = Path(directory, "records")
        order = {"place": self._place, "database": self._database, "version": version, "file": str(file)}
        worker.write(json.dumps({**order, "worn": worker.worn}).encode() + b"\n")
        return _TruthReading(version, worker, file)

    def _conclude(self, reading: _TruthReading) -> None:
        line = reading.worker.stdout.readline()
        if not line:
            line = json.dumps(
                {"error": f"the reading process {how_it_ended(reading.worker.process.returncode)}"}
            ).encode()
        found = json.loads(line)
        if "error" in found:
            self._tell("truth", reading.version, f"cannot be read: {found['error']}")
            return
        self._tell("truth", reading.version, f"{found['records']:,} records, compared from now on")
        self._take(reading.version, reading.file)
