"""The merging program: its input, its output, its ends, and its pace."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt
from gossipkv.processes import leash
from gossipkv.processes.program import command, order_line, read_order
from gossipkv.storage.engine.child import MODULE, ChildInput, MergeProgress, MergeRefused, understand
from gossipkv.storage.engine.manifest import RunFile
from gossipkv.storage.engine.merge import ExpiryOrder, LogInput, MergeOrder, MergeOutput
from tests.oracle import merge as oracle
from tests.oracle import record
from tests.unit.storage.engine.merge_log import write_segment
from tests.unit.storage.engine.merge_world import World, following, parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.oracle.merge import Records

MIB = 1 << 20


def wide(numbers: range) -> Records:
    return {oracle.key_of(1, b"%05d" % number): b"\x01" + bytes(90) for number in numbers}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a store with a young run and an oldest one."""
    (tmp_path / "runs").mkdir()
    world = World(RealFiles(), str(tmp_path))
    world.add_young(parts(wide(range(0, 300, 2)), [80]))
    world.add_oldest(parts(wide(range(300)), [100, 200]))
    return world


@pytest.fixture
def order(world: World, tmp_path: Path) -> MergeOrder:
    """Return an order to merge everything into the oldest run."""
    return world.order_into_oldest({1}, file_bytes=1 << 20)


@pytest.fixture
def flush(world: World, tmp_path: Path) -> MergeOrder:
    """Return an order to merge a segment into a young run."""
    segment = write_segment(tmp_path, 3, [oracle.encode([(1, 1, b"00007", b"logged"), (2, 1, b"00008", b"")])])
    return replace(world.order([], {1}), log=(segment,))


class Child:
    """The program, on a leash."""

    def __init__(self, order: MergeOrder | None) -> None:
        worn, self.held = leash.braid()
        self.process = subprocess.Popen(
            command(MODULE), pass_fds=[worn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        os.close(worn)
        if order is not None:
            self.tell(order_line((order, worn)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        leash.let_go(self.held)
        self.process.kill()
        self.process.communicate()

    def tell(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def lines(self) -> Iterator[object]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield understand(line)


def output_of(child: Child) -> MergeOutput:
    *said, last = child.lines()
    assert child.process.wait(60) == 0, child.process.stderr.read()
    written = [line.worked_bytes for line in said]
    assert written == sorted(written)
    assert written[-1] > 0
    return last


def test_an_order_and_its_output(world: World, order: MergeOrder, flush: MergeOrder) -> None:
    """The child has the result of a merge in this process."""
    logged = oracle.records([(1, 1, b"00007", b"logged"), (2, 1, b"00008", b"")])
    runs = [*map(world.content, order.runs)]
    for told, inputs in ((order, runs), (flush, [logged])):
        with Child(replace(told, number=7 + len(inputs))) as child:
            output = output_of(child)
        assert output.end is None
        found = [*world.content(output.files).items()]
        assert found == oracle.merged(inputs, {1}, drops_tombstones=told is order)
        for file in output.files:
            assert os.stat(world.path(file.name)).st_size == file.size_bytes


def test_the_child_imports_the_filter_of_expired_records(tmp_path: Path) -> None:
    """Expired records leave, and others stay."""
    world = World(RealFiles(), str(tmp_path))
    (tmp_path / "runs").mkdir()
    records = {
        b"\0\0\0\1\1%03d" % number: b"\1" + record.encode((0, 1, number + 1, record.EXPIRING, b"", b"v", expires_ms))
        for number in range(100)
        for expires_ms in (1 + number % 2 * 5000,)
    }
    for part in (0, 50):
        world.add_young([dict([*records.items()][part : part + 50])])
    rows = (b"", b"", b"", None, 1000), (b"\0\0\0\1\1", b"\0\0\0\1\2", (1 << 64 | 100).to_bytes(16), None, 1000)
    filter_ = ExpiryOrder(
        "gossipkv.replication._replication", "ExpiryFilter", 1000, b"".join(map(msgpack.packb, rows)).hex()
    )
    with Child(replace(world.order(world.young, {1}), drops_tombstones=True, expiry=filter_)) as child:
        (file,) = output_of(child).files
    assert (file.records, file.expiring, file.stale_ms) == (50, 50, 5001)


def test_a_stretch_and_what_follows_it(order: MergeOrder) -> None:
    """The output names the end, from which the next child continues."""
    with Child(replace(order, file_bytes=16_000, stretch_bytes=16_000)) as child:
        output = output_of(child)
    assert output.end is not None
    assert output.files[-1].last < output.end
    with Child(following(replace(order, file_bytes=16_000, stretch_bytes=16_000), output)) as child:
        assert output_of(child).files[0].first >= output.end


def test_the_order_is_read_back_as_it_was() -> None:
    file = RunFile("00000001-0001.gkv", 1, 2, 3, b"\x00\xff", b"\x01", 4, 5, 6)
    other = RunFile("00000002-0003.gkv", 5, 6, 7, b"\x02", b"\x03", 8)
    whole = MergeOrder(
        "/some where", 2**64 - 1, 7, (LogInput(1, 2, 3), LogInput(4, 5, 6)), ((file, other), (file,)),
        drops_tombstones=True, start=b"\x00\xfe", spaces=(1, 5), file_bytes=8, purges=True, stretch_bytes=9,
        memory_bytes=10, bytes_per_second=11, sweeps=True, expiry=ExpiryOrder("module", "Filter", 12, "00ff"),
    )  # fmt: skip
    for made in (whole, replace(whole, log=(), runs=(), start=b"", spaces=(), drops_tombstones=False)):
        line = order_line((made, 3))
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert read_order(line, tuple) == (made, 3)


@pytest.mark.parametrize(
    "line", [b"[]", b"{}", b'{"progress": "1"}', b'{"done": [[], []]}', b'{"error": ["full"]}', b"no JSON"]
)
def test_lines_that_no_child_says(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        understand(line)


@given(st.text())
def test_what_went_wrong(reason: str) -> None:
    assert understand(json.dumps({"error": reason}).encode()) == MergeRefused(reason)


def test_damage_is_told(world: World, order: MergeOrder) -> None:
    """The error has file and offset, the expected and the actual checksum."""
    path = Path(world.path(world.oldest[1].name))
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    with Child(order) as child:
        *_, last = child.lines()
        assert child.process.wait(60) == 1
    assert isinstance(last, Corrupt)
    assert (last.file, last.offset) == (str(path), 4096)
    assert last.details["expected"] != last.details["got"]


def test_damage_of_the_log_is_told(flush: MergeOrder, tmp_path: Path) -> None:
    """Damage is a changed frame, a segment with another salt, or a missing segment."""
    path = tmp_path / "log" / "0000000000000003.log"
    content = path.read_bytes()
    path.write_bytes(content[:4140] + bytes([content[4140] ^ 1]) + content[4141:])
    wrong = replace(flush, log=(flush.log[0]._replace(salt=9),))
    missing = replace(flush, log=(flush.log[0]._replace(number=4),))
    for told, name in ((flush, path.name), (wrong, path.name), (missing, "0000000000000004.log")):
        with Child(told) as child:
            (last,) = child.lines()
            assert child.process.wait(60) == 1
        assert isinstance(last, Corrupt)
        assert last.file == str(path.with_name(name))


def test_what_the_system_refuses_is_told(order: MergeOrder, tmp_path: Path) -> None:
    """An input is gone or a name is taken: the reason names the path."""
    (tmp_path / "runs" / "00000007-0001.gkv.tmp").write_bytes(b"")
    with Child(order) as child:
        *_, last = child.lines()
        assert child.process.wait(60) == 1
    assert isinstance(last, MergeRefused)
    assert "00000007-0001.gkv.tmp" in last.reason
    gone = order.runs[0][0]._replace(name="gone.gkv")
    with Child(replace(order, runs=((gone,), ()))) as child:
        (last,) = child.lines()
    assert isinstance(last, MergeRefused)
    assert "gone.gkv" in last.reason


def test_no_order() -> None:
    """A child whose input ends before a line exits with status 1."""
    with Child(None) as child:
        child.process.stdin.close()
        assert child.process.wait(60) == 1
        assert not list(child.lines())
        child.process.stdin = None


@pytest.fixture
def slow(tmp_path: Path) -> MergeOrder:
    """Return a merge of 9 MiB that takes hours."""
    (tmp_path / "runs").mkdir()
    source = random.Random(3)
    batches = [oracle.encode([(1, 1, b"%d" % number, source.randbytes(MIB))]) for number in range(9)]
    segment = write_segment(tmp_path, 1, batches)
    world = World(RealFiles(), str(tmp_path))
    return replace(world.order([], {1}), log=(segment,), bytes_per_second=100)


def test_a_pace_is_kept_and_another_is_heeded(slow: MergeOrder) -> None:
    """The child waits after the first write, the burst, and continues when the pace is raised."""
    with Child(slow) as child:
        lines = child.lines()
        first, second = next(lines), next(lines)
        assert isinstance(first, MergeProgress)
        assert isinstance(second, MergeProgress)
        assert first.worked_bytes < second.worked_bytes < 9 * MIB, "the second waits until it may be used"
        child.tell(b"200\n")
        child.tell(b"0\n")
        *_, last = lines
        assert isinstance(last, MergeOutput)


def test_the_leash_ends_it(slow: MergeOrder) -> None:
    """The leash also ends a waiting child."""
    with Child(slow) as child:
        next(child.lines())
        assert child.process.poll() is None
        leash.let_go(child.held)
        assert child.process.wait(60) == -signal.SIGKILL


def test_input_that_ends(order: MergeOrder) -> None:
    """The child's pace stays when its input is closed."""
    with Child(replace(order, bytes_per_second=100 * MIB)) as child:
        child.process.stdin.close()
        assert output_of(child).end is None
        child.process.stdin = None


def test_paces_that_come_while_nobody_waits() -> None:
    reading, writing = os.pipe()
    heard = ChildInput(reading)
    os.write(writing, b"order\n7\n8\n")
    assert heard.first_line() == b"order"
    os.write(writing, b"9\n1")
    heard.wait(0)
    assert heard.pace.rate == 8
    heard.wait(0)
    assert heard.pace.rate == 9
    os.write(writing, b"0\n")
    heard.wait(1)
    assert heard.pace.rate == 10
    os.close(writing)
    heard.wait(0)
    assert heard.pace.rate == 10
    os.close(reading)


# -- memory ------------------------------------------------------------------------------------------------------------
