"""A build on several cores: processes that each read a share of the files, and the one that directs them.

Processes, because decoding holds the interpreter's lock; `gossipkv.storage.shared_build` says how their work adds up to
the same files as that of one.  Every lane is `python -m gossipkv.dataset.build.lane`.  Both sides speak in lines of a
word and JSON:

    the director says                the lane does and says
    order    what and how            reads its files, then  read     totals and counters
    aside                            puts runs aside, then  runs     path, end and longest part of each
    write    totals, groups, runs    writes its groups      written  reports and VmHWM
    end                              closes, and ends

`aside` comes only if groups have records in several lanes.  Meanwhile a lane says how far it is in `progress`, and is
told the bytes a second that it may read in `pace`.  `error` is its last word if it fails.

The invariant: files get their names when all lanes have written theirs, or not at all.  However a build ends, no lane
outlives it: they are killed and waited for here, and each holds a leash whose other end only this
process has, so that they die with it.  What killed ones leave is removed here, or by the next build.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import subprocess
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Self

from gossipkv.errors import Detail, GossipKVError, StorageError
from gossipkv.processes import leash
from gossipkv.processes.program import command, environment, how_it_ended
from gossipkv.processes.talk import Lines
from gossipkv.storage.builder import (
    BuildReport,
    GroupTotal,
    SharedRun,
    Totals,
    put_in_place,
    remove_leftovers,
)
from gossipkv.storage.shared_build import share_groups, share_out

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from types import TracebackType

    from gossipkv.environment.seam import Files

    # A word, and JSON.
    Message = tuple[str, str]

PROGRAM = "gossipkv.dataset.build.lane"

# Below this a build in one process is done before others have started.
SMALL_SOURCE_BYTES = 32 << 20

# What a lane says.
WORDS = ("read", "runs", "written", "progress", "error")

# How often the pace is looked at while nothing is heard.
TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class LaneTask:
    """What all lanes of a build make together."""

    reading: str  # What their reading is told: how to read which files.  Nobody else looks into it.
    directory: str
    names: tuple[str, ...]  # of the sorted files
    memory_bytes: int  # for all builders together
    compression: str
    metadata: tuple[str, ...]  # of each sorted file, its bytes as Latin-1


@dataclass(frozen=True, slots=True)
class LaneOrder:
    """What one lane is told first, as one line of JSON."""

    task: LaneTask
    lane: int
    first_file: int
    end_file: int
    memory_bytes: int  # for its builder
    bytes_per_second: int  # 0: as fast as it goes
    leash: int  # a descriptor

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> LaneOrder:
        """Return what `to_json` was called on."""
        fields = json.loads(line)
        task = fields["task"]
        fields["task"] = LaneTask(**{**task, "names": tuple(task["names"]), "metadata": tuple(task["metadata"])})
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class WriteOrder:
    """What a lane is to write: its groups, out of its own records or out of these runs."""

    totals: Totals
    groups: list[int]
    runs: list[SharedRun]

    def to_json(self) -> str:
        """One line, with the totals of these groups only."""
        kept = set(self.groups)
        return json.dumps([to_body(self.totals, kept), self.groups, [astuple(run) for run in self.runs]])

    @classmethod
    def from_json(cls, line: str) -> WriteOrder:
        """Return what `to_json` was called on."""
        totals, groups, runs = json.loads(line)
        return cls(totals_of(totals), groups, [SharedRun(*run) for run in runs])


@dataclass(frozen=True, slots=True)
class LaneResult:
    """What has become of it."""

    reports: list[BuildReport]  # for each name
    counters: list[str]  # for each lane, as JSON, what its reading returned; in the order of the files
    peak_bytes: int  # The most memory of each lane (VmHWM), summed.


@dataclass(frozen=True, slots=True)
class LaneProgress:
    """The sum over all lanes."""

    read_bytes: int
    read_records: int
    written_records: int


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def useful_lanes(sizes_bytes: Sequence[int], most: int) -> int:
    """How many lanes, up to `most`, have something to do that is worth starting them."""
    if sum(sizes_bytes) < SMALL_SOURCE_BYTES:
        return 1
    return max(1, min(most, sum(size > 0 for size in sizes_bytes)))


def builders_bytes(memory_bytes: int, *, lanes: int, process_bytes: int, reading_bytes: int) -> int:
    """What is left for all builders together, so that all processes of a build stay within `memory_bytes`.

    `process_bytes` is what a process takes for itself, and `reading_bytes` what reading holds.  One lane needs no
    director.
    """
    directing = 0 if lanes == 1 else process_bytes
    return memory_bytes - directing - lanes * (process_bytes + reading_bytes)


def build_in_lanes(
    task: LaneTask,
    sizes_bytes: Sequence[int],
    lanes: int,
    files: Files,
    *,
    on_progress: Callable[[LaneProgress], None] = lambda _: None,
    bytes_per_second: Callable[[], int] = lambda: 0,
    program: str = PROGRAM,
) -> LaneResult:
    """Builds `task.names` in `task.directory`; returns when they are in place.

    `sizes_bytes` are those of the files to read, in order; each lane gets neighbours.  `bytes_per_second` is asked now
    and then; the lanes share it.  `program` is the module that each lane runs.

    Raises:
        GossipKVError: what a lane has failed with, of the same class.
        StorageError: a lane was killed, or the system refuses.
    """
    remove_leftovers(task.directory, files)
    shares = [share for share in share_out(sizes_bytes, lanes) if share]
    try:
        with _Director(program, on_progress, bytes_per_second) as director:
            for share in shares:
                director.start(task, share, len(shares))
            result = _direct(director, len(task.names))
    except BaseException:
        with contextlib.suppress(StorageError):
            remove_leftovers(task.directory, files)
        raise
    put_in_place(task.directory, task.names, files)
    return result


def _direct(director: _Director, group_count: int) -> LaneResult:
    """The steps of all lanes, together."""
    read = [json.loads(line) for line in director.gather("read")]
    shares = share_groups([totals_of(totals) for totals, _ in read], group_count)
    runs: list[SharedRun] = []
    if shares.exchange:
        director.tell_all("aside")
        for line in director.gather("runs"):
            runs += [SharedRun(*run) for run in json.loads(line)]
    for lane, groups in enumerate(shares.groups):
        director.tell(lane, "write", WriteOrder(shares.totals, groups, runs).to_json())
    reports: dict[int, BuildReport] = {}
    peak_bytes = 0
    for groups, line in zip(shares.groups, director.gather("written"), strict=True):
        written, peak = json.loads(line)
        reports.update(zip(groups, [BuildReport(*report) for report in written], strict=True))
        peak_bytes += peak
    director.end()
    return LaneResult(
        [reports[group] for group in range(group_count)], [json.dumps(counters) for _, counters in read], peak_bytes
    )


def to_body(totals: Totals, groups: Container[int] | None = None) -> list[Detail]:
    """Totals as JSON; of some groups only."""
    kept: list[Detail] = [
        [number, total.records, total.size_bytes, total.hash_sum, total.prefix.hex()]
        for number, total in totals.groups.items()
        if groups is None or number in groups
    ]
    return [totals.added, kept]


def totals_of(body: tuple[int, list[tuple[int, int, int, int, str]]]) -> Totals:
    """Return what `to_body` was given."""
    added, groups = body
    return Totals(
        added,
        {
            number: GroupTotal(records, size_bytes, hash_sum, bytes.fromhex(prefix))
            for number, records, size_bytes, hash_sum, prefix in groups
        },
    )


def error_to_json(error: GossipKVError) -> str:
    """An error as a lane's last word."""
    kind = type(error)
    return json.dumps([kind.__module__, kind.__qualname__, error.message, error.details])


def error_from_json(line: str) -> GossipKVError:
    """The same error, for whoever directs."""
    module, name, message, details = json.loads(line)
    kind = getattr(importlib.import_module(module), name)
    error: GossipKVError = kind.__new__(kind)
    GossipKVError.__init__(error, message, details)
    return error


class _Lane:
    """A lane's process, and what of its words has not been a whole line yet."""

    def __init__(self, process: subprocess.Popen[bytes], held: int) -> None:
        self.process = process
        self.progress = LaneProgress(0, 0, 0)
        self._held = held
        self._lines = Lines()

    @property
    def stdout(self) -> int:
        """Where it is heard."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def tell(self, line: bytes) -> None:
        """One line to it; if it is gone, that is heard."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line)
            self.process.stdin.flush()

    def hear(self) -> list[Message] | None:
        """What has come; None at the end."""
        part = os.read(self.stdout, 1 << 16)
        if not part:
            return None
        words = (line.decode("utf-8", "replace").partition(" ") for line in self._lines.feed(part))
        return [(word, rest) for word, _, rest in words if word in WORDS]  # Something in the lane may have printed.

    def end(self) -> None:
        """Leaves nothing of it."""
        leash.let_go(self._held)
        self.process.kill()  # Does nothing to one that has ended.
        self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # An order that it did not live to read.
            self.process.stdin.close()
        self.process.stdout.close()


class _Director:
    """Starts lanes, talks with all of them, and answers for their end."""

    def __init__(
        self, program: str, on_progress: Callable[[LaneProgress], None], bytes_per_second: Callable[[], int]
    ) -> None:
        self._program = program
        self._on_progress = on_progress
        self._bytes_per_second = bytes_per_second
        self._rate = bytes_per_second()
        self._lanes: list[_Lane] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._selector.close()
        for lane in self._lanes:
            lane.end()

    def start(self, task: LaneTask, share: range, count: int) -> None:
        """One more lane, which is to read a share of the files.

        Raises:
            StorageError: no process can be started.
        """
        number = len(self._lanes)
        try:
            worn, held = leash.braid()
            try:
                process = _start(self._program, worn)
            except OSError:
                leash.let_go(held)
                raise
            finally:
                os.close(worn)
        except OSError as error:
            message = f"{task.directory}: cannot start a process of the build: {error.strerror}"
            raise StorageError(message, {"file": task.directory, "errno": error.errno}) from error
        lane = _Lane(process, held)
        self._lanes.append(lane)
        self._selector.register(lane.stdout, selectors.EVENT_READ, lane)
        memory_bytes = task.memory_bytes // count
        order = LaneOrder(task, number, share.start, share.stop, memory_bytes, _part(self._rate, count), worn)
        self.tell(number, "order", order.to_json())

    def tell(self, number: int, word: str, rest: str = "") -> None:
        """One message to one lane."""
        self._lanes[number].tell(f"{word} {rest}\n".encode())

    def tell_all(self, word: str, rest: str = "") -> None:
        """The same to all."""
        for number in range(len(self._lanes)):
            self.tell(number, word, rest)

    def gather(self, word: str) -> list[str]:
        """The message of that word from each lane, once all have sent it.

        Raises:
            GossipKVError: a lane has failed.
            StorageError: a lane has died.
        """
        found: dict[int, str] = {}
        while len(found) < len(self._lanes):
            for key, _ in self._selector.select(TICK_S):
                lane: _Lane = key.data
                messages = lane.hear()
                if messages is None:
                    raise _death(lane.process)
                for said, rest in messages:
                    if said == word:
                        found[self._lanes.index(lane)] = rest
                    elif said == "error":
                        raise error_from_json(rest)
                    else:
                        lane.progress = LaneProgress(*json.loads(rest))
            told = [lane.progress for lane in self._lanes]
            self._on_progress(
                LaneProgress(
                    sum(progress.read_bytes for progress in told),
                    sum(progress.read_records for progress in told),
                    sum(progress.written_records for progress in told),
                )
            )
            self._keep_pace()
        return [found[number] for number in range(len(self._lanes))]

    def end(self) -> None:
        """Lets all lanes close and end by themselves."""
        self.tell_all("end")
        for lane in self._lanes:
            while (messages := lane.hear()) is not None:
                for said, rest in messages:
                    if said == "error":
                        raise error_from_json(rest)
            if lane.process.wait() != 0:
                raise _death(lane.process)

    def _keep_pace(self) -> None:
        rate = self._bytes_per_second()
        if rate != self._rate:
            self._rate = rate
            self.tell_all("pace", str(_part(rate, len(self._lanes))))


def _part(bytes_per_second: int, lanes: int) -> int:
    """What one lane may read; 0 stays without a limit."""
    return bytes_per_second and max(1, bytes_per_second // lanes)


def _start(program: str, worn: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # Our own program, by this interpreter.
        command(program),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        pass_fds=(worn,),
        # A Ctrl-C in the terminal is for the director, which ends its lanes itself.  No session of its own: where the
        # kernel schedules session against session, that would give each lane as much as all of the director's.
        process_group=0,
    )


def _death(process: subprocess.Popen[bytes]) -> StorageError:
    status = process.wait()
    return StorageError(f"a process of the build {how_it_ended(status)}", {"status": status})
