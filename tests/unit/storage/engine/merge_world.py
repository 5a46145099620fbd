"""A store's runs and log for tests of merges: made without the package, merged by it, and read back as dicts."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING
from unittest import mock

from gossipkv.environment.seam import WRITE_NEW
from gossipkv.storage.engine import merge as merging
from gossipkv.storage.engine.manifest import RunFile
from gossipkv.storage.engine.merge import MIN_MEMORY_BYTES, LogInput, MergeOrder, MergeOutput
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import merge as oracle
from tests.oracle import sorted_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gossipkv.environment.seam import Files
    from tests.oracle.merge import Records

STORE = 0x1234_5678_9ABC_DEF0
MERGE = 7


def image(records: Records) -> bytes:
    return sorted_file.write(sorted(records.items()), seed=sorted_file.seed_of(records))


def parts(records: Records, cuts: Iterable[int]) -> list[Records]:
    """Cut the ordered records at these indices; no part is empty."""
    ordered = sorted(records.items())
    edges = sorted({0, len(ordered), *(cut for cut in cuts if cut < len(ordered))})
    return [dict(ordered[one:two]) for one, two in pairwise(edges)]


def described(name: str, content: bytes) -> RunFile:
    with SortedFile(content, name=name) as file:
        file.verify()
        found = dict(file.scan())
    tombstones = sum(value[0] == oracle.TOMBSTONE for value in found.values())
    return RunFile(name, len(found), len(content), zlib.crc32(content[-256:]), min(found), max(found), tombstones)


@dataclass
class World:
    files: Files
    directory: str
    young: list[list[RunFile]] = field(default_factory=list)  # From the newest run to the oldest.
    oldest: list[RunFile] = field(default_factory=list)
    log: dict[int, list[bytes]] = field(default_factory=dict)  # Batches by segment.
    count: int = 0

    def put(self, path: str, content: bytes) -> None:
        descriptor = self.files.open(path, WRITE_NEW)
        self.files.pwrite(descriptor, content, 0)
        self.files.close(descriptor)

    def read(self, path: str) -> bytes:
        descriptor = self.files.open(path)
        try:
            return self.files.pread(descriptor, self.files.size(descriptor), 0)
        finally:
            self.files.close(descriptor)

    def path(self, name: str) -> str:
        return f"{self.directory}/runs/{name}"

    def add(self, content: Records) -> RunFile:
        self.count += 1
        name = f"00000001-{self.count:04d}.gkv"
        self.put(self.path(name), image(content))
        return described(name, self.read(self.path(name)))

    def add_young(self, pieces: Sequence[Records]) -> None:
        """Add a run that is older than the other young runs."""
        self.young.append([self.add(piece) for piece in pieces])

    def add_oldest(self, pieces: Sequence[Records]) -> None:
        self.oldest += [self.add(piece) for piece in pieces]

    def content(self, files: Iterable[RunFile]) -> Records:
        found: Records = {}
        for name, *_ in files:
            with SortedFile(self.read(self.path(name)), name=name) as file:
                found |= dict(file.scan())
        return found

    def order(self, runs: Sequence[Sequence[RunFile]], spaces: Iterable[int], file_bytes: int = 1 << 20) -> MergeOrder:
        """Return an order for these young runs, newest first; without runs, for the log."""
        return MergeOrder(
            directory=self.directory,
            store=STORE,
            number=MERGE,
            log=() if runs else tuple(LogInput(number, number * 11, 0) for number in sorted(self.log)),
            runs=tuple(map(tuple, runs)),
            drops_tombstones=False,
            start=b"",
            spaces=tuple(sorted(spaces)),
            file_bytes=file_bytes,
            purges=False,
            stretch_bytes=file_bytes,
            memory_bytes=MIN_MEMORY_BYTES,
            bytes_per_second=0,
        )

    def order_into_oldest(self, spaces: Iterable[int], file_bytes: int = 1 << 20) -> MergeOrder:
        return replace(self.order([*self.young, self.oldest], spaces, file_bytes), drops_tombstones=True)

    def read_log(self, _files: Files, _order: MergeOrder, segment: LogInput) -> Iterator[tuple[int, bytes]]:
        """Yield each batch with its offset, as `segments.read_segment` does."""
        at = 4096
        for batch in self.log[segment.number]:
            yield at, batch
            at += 32 + len(batch)

    def stretch(self, order: MergeOrder, on_progress=lambda _: None, wait=lambda _: None) -> MergeOutput:
        """Merge once, with this world's log."""
        with mock.patch.object(merging, "read_batches", self.read_log):
            return merging.merge(self.files, order, on_progress, wait=wait)

    def merge(self, order: MergeOrder) -> list[MergeOutput]:
        """Merge stretch by stretch, with a switch after each; return the outputs."""
        outputs = [self.stretch(order)]
        while outputs[-1].end is not None:
            order = following(order, outputs[-1])
            outputs.append(self.stretch(order))
        return outputs


def following(order: MergeOrder, output: MergeOutput) -> MergeOrder:
    """Return the order for the next stretch after a switch."""
    assert output.end is not None
    *newer, target = order.runs
    runs = (*newer, tuple(switched(target, output)))
    return replace(order, number=order.number + 1, runs=runs, start=output.end)


def switched(run: Sequence[RunFile], output: MergeOutput) -> list[RunFile]:
    """Return a run after a switch; check that its keys still ascend from file to file."""
    kept = [file for file in run if file.name not in output.replaced]
    assert len(kept) + len(output.replaced) == len(run), "what is replaced was there"
    now = sorted([*kept, *output.files], key=lambda file: file.first)
    for before, after in pairwise(now):
        assert before.last < after.first
    return now
