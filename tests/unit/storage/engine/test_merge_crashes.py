"""A merge struck at each operation leaves its reported outputs whole and in place, and only unnamed files besides."""

from __future__ import annotations

import errno
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gossipkv.storage.engine.merge import MergeOutput, merge
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import merge as oracle
from tests.unit.storage.engine.merge_world import World, following, parts, switched
from tests.unit.storage.memory_files import MemoryFiles
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles

if TYPE_CHECKING:
    from gossipkv.storage.engine.manifest import RunFile
    from tests.oracle.merge import Records

LIVE = {1}
FILE_BYTES = 12_000
KINDS = CHANGING - {"copy_range", "make_directory", "remove_directory", "allocate", "link"}


def wide(numbers: range, value: bytes = b"\x01" + bytes(90)) -> Records:
    return {oracle.key_of(1, b"%05d" % number): value for number in numbers}


class Case:
    """A merge into the oldest run, in several stretches, with its initial inputs."""

    def __init__(self) -> None:
        self.world = World(MemoryFiles(), "store")
        self.world.add_young(parts(wide(range(0, 300, 7), b"\x01new"), [10]))
        self.world.add_young(parts(wide(range(100, 130), b"\x02"), []))
        self.world.add_oldest(parts(wide(range(300)), [60, 120, 180, 240]))
        self.inputs = [*map(self.world.content, self.world.young)]
        self.answers = oracle.answers([*self.inputs, self.world.content(self.world.oldest)], LIVE)
        self.before = {path: bytes(held) for path, held in self.world.files.named.items()}
        self.order = self.world.order_into_oldest(LIVE, file_bytes=FILE_BYTES)

    def start(self) -> None:
        self.world.files.named.clear()
        self.world.files.named |= {path: bytearray(held) for path, held in self.before.items()}

    def merge(self, files: FaultyFiles) -> None:
        """Record the output of each stretch; the fault passes on."""
        self.outputs: list[MergeOutput] = []
        order = self.order
        while True:
            output = merge(files, order)
            self.outputs.append(output)
            files.trace.append(f"output {' '.join(self.world.path(file.name) for file in output.files)}")
            if output.end is None:
                return
            order = following(order, output)

    def check(self) -> None:
        """Check that reported files are there, the inputs are unchanged, and readers see no difference."""
        named = self.world.files.named
        oldest: list[RunFile] = list(self.world.oldest)
        for output in self.outputs:
            oldest = switched(oldest, output)
            for file in output.files:
                with SortedFile(bytes(named[self.world.path(file.name)])) as opened:
                    opened.verify()
        assert all(named[path] == held for path, held in self.before.items())
        below = self.world.content(oldest)
        young = [] if self.outputs and self.outputs[-1].end is None else self.inputs
        assert oracle.answers([*young, below], LIVE) == self.answers

    @property
    def said(self) -> set[str]:
        return {self.world.path(file.name) for output in self.outputs for file in output.files}


def calm(case: Case) -> FaultyFiles:
    case.start()
    files = FaultyFiles(case.world.files)
    case.merge(files)
    case.check()
    assert len(case.outputs) >= 3
    assert {kind for kind in KINDS if files.counts[kind]} >= {"create", "pwrite", "sync", "rename", "sync_directory"}
    return files


def test_an_output_is_said_when_it_is_durable() -> None:
    """Each file is synced, then named, then its name is synced; only then its output is reported."""
    case = Case()
    trace = calm(case).trace
    synced, named, durable = 0, set(), set()
    for step in trace:
        kind, _, detail = step.partition(" ")
        if kind == "sync":
            synced += 1
        elif kind == "rename":
            source, target = re.fullmatch(r"(.*) to (.*)", detail).groups()
            assert source == target + ".tmp"
            named.add(target)
            assert len(named) == synced, "a file is synced before it has its name"
        elif kind == "sync_directory":
            durable = set(named)
        elif kind == "output":
            assert set(detail.split()) <= durable
    assert case.said <= durable


@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
def test_a_kill_at_every_operation(action: Action) -> None:
    """Reported files are whole, readers see no difference, and leftovers have names of the merge."""
    case = Case()
    counts = calm(case).counts
    finished = 0
    for number in range(sum(counts[kind] for kind in KINDS)):
        case.start()
        files = FaultyFiles(case.world.files, Fault(number, action, kinds=KINDS))
        with pytest.raises(Crash):
            case.merge(files)
        assert files.struck
        case.check()
        finished += len(case.outputs)
        left = case.world.files.named.keys() - case.before.keys() - case.said
        assert all(re.match("store/runs/000000[0-9]{2}-", name) for name in left), "known for nobody's by their names"
    assert finished, "some came after an output"


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("lasting", [False, True])
def test_an_error_at_every_operation(error: int, *, lasting: bool) -> None:
    """The error passes on, and unreported files are removed if the system permits."""
    case = Case()
    counts = calm(case).counts
    kinds = KINDS - {"unlink"}
    for number in range(sum(counts[kind] for kind in kinds)):
        case.start()
        files = FaultyFiles(case.world.files, Fault(number, Action.FAIL_HALFWAY, kinds, error, lasting))
        with pytest.raises(OSError, match=r".") as caught:
            case.merge(files)
        assert caught.value.errno == error
        case.check()
        assert case.world.files.named.keys() - case.before.keys() == case.said
        assert not case.world.files.opened


def test_a_failure_to_open_or_map_an_input() -> None:
    """The failure is EMFILE; it passes on, and no unreported file stays."""
    case = Case()
    counts = calm(case).counts
    for kind in ("open", "map"):
        for number in range(counts[kind]):
            case.start()
            files = FaultyFiles(case.world.files, Fault(number, Action.FAIL, {kind}, errno.EMFILE))
            with pytest.raises(Exception, match="Too many open files"):
                case.merge(files)
            case.check()
            assert case.world.files.named.keys() - case.before.keys() == case.said


def test_a_merge_again_after_some_outputs() -> None:
    """Switched stretches before a kill are ordinary inputs of the next merge."""
    case = Case()
    calm(case)
    for kept in range(len(case.outputs)):
        case.start()
        oldest = list(case.world.oldest)
        case.merge(FaultyFiles(case.world.files))
        for output in case.outputs[:kept]:
            oldest = switched(oldest, output)
        again = World(case.world.files, "store", case.world.young, oldest)
        for output in again.merge(replace(again.order_into_oldest(LIVE, file_bytes=FILE_BYTES), number=80)):
            oldest = switched(oldest, output)
        assert oracle.answers([again.content(oldest)], LIVE) == case.answers
