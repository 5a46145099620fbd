"""Builds in several processes: the files of one, all or none, and nobody left behind."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gossipkv.dataset.build.lanes import (
    SMALL_SOURCE_BYTES,
    LaneOrder,
    LaneTask,
    WriteOrder,
    build_in_lanes,
    builders_bytes,
    error_from_json,
    error_to_json,
    useful_lanes,
)
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, GossipKVError, LimitExceeded, SourceError, StorageError
from gossipkv.storage.builder import MIN_MEMORY_BYTES, GroupTotal, SharedRun, SortedFileBuilder, Totals
from gossipkv.storage.sorted_file import SortedFile
from gossipkv.testing.faulty_files import Action, Fault, FaultyFiles
from tests.oracle import sorted_file as oracle
from tests.unit.dataset.build.lane_program import group_of

PROGRAM = "tests.unit.dataset.build.lane_program"
GROUPS = 5
METADATA = tuple(bytes(range(256 - group)).decode("latin-1") for group in range(GROUPS))


class Build:
    """Files to build from, and where to."""

    def __init__(self, root, contents, trouble=None, groups=GROUPS):
        self.paths = []
        for number, lines in enumerate(contents):
            self.paths.append(root / f"part-{number}")
            self.paths[-1].write_bytes(b"".join(b"%s\t%s\n" % line for line in lines))
        self.records = [line for lines in contents for line in lines]
        self.sizes = [path.stat().st_size for path in self.paths]
        self.directory = root / "built"
        self.directory.mkdir()
        names = tuple(f"{group}.gkv" for group in range(groups))
        told = {"files": [str(path) for path in self.paths], "groups": groups, "trouble": trouble or {}}
        self.task = LaneTask(json.dumps(told), str(self.directory), names, 3 * MIN_MEMORY_BYTES, "none", METADATA)

    def run(self, lanes, files=None, **options):
        """Builds in so many lanes."""
        return build_in_lanes(self.task, self.sizes, lanes, files or RealFiles(), program=PROGRAM, **options)

    def left(self):
        """What is in the directory."""
        return sorted(os.listdir(self.directory))

    def expected(self):
        """The bytes of each file by the oracle."""
        return [
            oracle.write(
                [record for record in self.records if group_of(record[0], GROUPS) == group],
                metadata=METADATA[group].encode("latin-1"),
            )
            for group in range(GROUPS)
        ]

    def built(self):
        """The bytes of each file."""
        return [(self.directory / name).read_bytes() for name in self.task.names]


def some_lines(seed, count, keys=400):
    """Lines with few keys, so that many come again."""
    source = random.Random(seed)
    return [(b"key %d" % source.randrange(keys), b"%d" % source.randrange(10**9)) for _ in range(count)]


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_the_files_are_the_oracles(tmp_path, lanes):
    """Keys in all files, and the counts of one build."""
    build = Build(tmp_path, [some_lines(number, 300) for number in range(4)])
    result = build.run(lanes)
    assert build.left() == sorted(build.task.names)
    assert build.built() == build.expected()
    told = [json.loads(counters) for counters in result.counters]
    assert len(told) == lanes
    assert [place for counters in told for place in counters["files"]] == [0, 1, 2, 3]
    assert sum(counters["records"] for counters in told) == 1200
    assert sum(report.records for report in result.reports) == len({key for key, _ in build.records})
    assert sum(report.records + report.duplicates for report in result.reports) == 1200
    assert [report.size_bytes for report in result.reports] == [len(image) for image in build.built()]


def test_files_that_are_partitioned_already(tmp_path):
    """Each lane writes what it has read; the third file has nothing, and group 4 nobody."""
    contents = [[(b"%d|%d" % (group, number), b"v") for number in range(99)] for group in (3, 0, 1, 2)]
    build = Build(tmp_path, [*contents[:2], [], *contents[2:]])
    build.run(2)
    assert build.built() == build.expected()


def test_more_than_memory_holds_within_the_memory_of_all_processes(tmp_path):
    """The most that each lane has had is its share beside what a process takes that builds next to nothing."""
    for name in ("idle", "busy"):
        (tmp_path / name).mkdir()
    idle = Build(tmp_path / "idle", [[(b"k", b"v")], [(b"k", b"w")]]).run(2)
    source = random.Random(3)
    lines = [(b"%08d" % source.randrange(10**8), source.randbytes(300).hex().encode()) for _ in range(60_000)]
    build = Build(tmp_path / "busy", [lines[at::4] for at in range(4)])
    assert sum(build.sizes) > build.task.memory_bytes
    assert build.run(2).peak_bytes <= idle.peak_bytes + build.task.memory_bytes
    found = {}
    for name in build.task.names:
        with SortedFile(build.directory / name) as file:
            file.verify()
            found.update(file.scan())
    assert found == dict(lines[at] for start in range(4) for at in range(start, len(lines), 4))


def test_progress_is_the_sum_and_reaches_the_end(tmp_path):
    """Forward only; all bytes, all records."""
    told = []
    build = Build(tmp_path, [some_lines(number, 3000, keys=10**6) for number in range(3)])
    build.run(3, on_progress=told.append)
    for name in ("read_bytes", "read_records", "written_records"):
        values = [getattr(progress, name) for progress in told]
        assert values == sorted(values)
    last = told[-1]
    assert (last.read_bytes, last.read_records) == (sum(build.sizes), 9000)
    assert 9000 > last.written_records >= len({key for key, _ in build.records})


@pytest.mark.parametrize(
    ("trouble", "kind", "message"),
    [
        ("wrong", SourceError, "part-2: byte 7: wrong"),
        ("damaged", Corrupt, r"part-2: damaged at byte 9"),
        ("gone", StorageError, r"part-2\.gone: cannot build: No such file"),
        ("bug", StorageError, "a process of the build ended with status 1"),
        ("killed", StorageError, "a process of the build was killed by signal 9"),
    ],
)
def test_what_one_lane_fails_with_ends_all(tmp_path, trouble, kind, message):
    """The same error as if this process had met it, at once, though another lane is stuck; nothing is left."""
    contents = [some_lines(number, 300) for number in range(4)]
    build = Build(tmp_path, contents, {"0": "stuck", "2": trouble})
    with pytest.raises(kind, match=message) as caught:
        build.run(2)
    assert type(caught.value) is kind
    if trouble == "wrong":
        assert caught.value.details == {"file": str(build.paths[2]), "offset": 7, "reason": "wrong"}
    assert build.left() == []
    assert not alive(build.paths[0])


def alive(path):
    """Whether the lane that got stuck at this file still is; it was if it ever got there."""
    pid = Path(f"{path}.pid")
    if not pid.exists():
        return False
    try:
        return " Z " not in Path(f"/proc/{pid.read_text()}/stat").read_text()  # A zombie waits for whoever adopted it.
    except FileNotFoundError:
        return False


def wait_for(condition):
    """Until it holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_lane_that_is_killed_while_others_wait_for_it(tmp_path):
    """Its runs and files go; the next build of the same succeeds."""
    build = Build(tmp_path, [some_lines(0, 40_000, keys=10**6), []], {"0": "stuck"})
    killer = threading.Thread(
        target=lambda: (
            wait_for(Path(f"{build.paths[0]}.pid").exists),
            wait_for(Path(f"{build.paths[0]}.pid").read_text),
            os.kill(int(Path(f"{build.paths[0]}.pid").read_text()), signal.SIGTERM),
        )
    )
    killer.start()
    with pytest.raises(StorageError, match="was killed by signal 15"):
        build.run(2)
    killer.join()
    assert build.left() == []


def test_leftovers_go_before_a_build(tmp_path):
    """As in one process."""
    build = Build(tmp_path, [some_lines(0, 10), some_lines(1, 10)])
    for name in ("run-0-3.tmp", "1.gkv.tmp"):
        (build.directory / name).write_bytes(b"left")
    build.run(2)
    assert build.left() == sorted(build.task.names)


def test_what_is_printed_is_no_message(tmp_path):
    """A library may write to standard output."""
    build = Build(tmp_path, [some_lines(0, 10), some_lines(1, 10)], {"0": "talks"})
    build.run(2)
    assert build.built() == build.expected()


def test_an_interruption_leaves_nobody(tmp_path):
    """Whatever ends the director, such as Ctrl-C, ends the lanes."""
    build = Build(tmp_path, [some_lines(0, 10), some_lines(1, 10)], {"0": "stuck"})

    groups = []

    def interrupt(_):
        if Path(f"{build.paths[0]}.pid").exists() and (pid := Path(f"{build.paths[0]}.pid").read_text()):
            groups.extend([os.getsid(int(pid)), os.getpgid(int(pid))])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build.run(2, on_progress=interrupt)
    assert groups[0] == os.getsid(0), "in the session of the director, whose share of the cores it uses"
    assert groups[1] != os.getpgid(0), "a Ctrl-C is for the director alone"
    assert not alive(build.paths[0])
    assert build.left() == []


@pytest.mark.parametrize("is_stopped", [False, True])
def test_lanes_die_with_their_director(tmp_path, is_stopped):
    """By SIGKILL, which it cannot answer; also those that somebody has stopped."""
    build = Build(tmp_path, [some_lines(0, 10), some_lines(1, 10)], {"0": "stuck", "1": "stuck"})
    script = (
        "import sys\n"
        "from gossipkv.dataset.build.lanes import LaneOrder, build_in_lanes\n"
        "from gossipkv.environment.real_files import RealFiles\n"
        "task = LaneOrder.from_json(open(sys.argv[1]).read()).task\n"
        f"build_in_lanes(task, [1, 1], 2, RealFiles(), program={PROGRAM!r})\n"
    )
    (tmp_path / "order").write_text(LaneOrder(build.task, 0, 0, 0, 0, 0, 0).to_json())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", script, tmp_path / "order"], env=environment) as director:
        pids = [Path(f"{path}.pid") for path in build.paths]
        wait_for(lambda: all(pid.exists() and pid.read_text() for pid in pids))
        if is_stopped:
            for pid in pids:
                os.kill(int(pid.read_text()), signal.SIGSTOP)
        director.kill()
    for path in build.paths:
        wait_for(
            lambda path=path: (
                not alive(path) or "Z" in Path(f"/proc/{Path(f'{path}.pid').read_text()}/stat").read_text()
            )
        )


def test_the_pace_is_shared_and_can_be_changed(tmp_path):
    """Two lanes that would take an hour are done at once when they may."""
    build = Build(tmp_path, [some_lines(number, 4000) for number in range(2)])
    rates = iter([2 * 30, 2 * 30, 2 * 30])
    told = []
    build.run(2, bytes_per_second=lambda: next(rates, 10**9), on_progress=told.append)
    assert build.built() == build.expected()
    build = Build((tmp_path / "slow").mkdir() or tmp_path / "slow", [some_lines(number, 4000) for number in range(2)])
    begin = time.monotonic()
    build.run(2, bytes_per_second=lambda: sum(build.sizes))
    assert time.monotonic() - begin > 0.5  # All but the last pieces of a second's worth.


@pytest.mark.parametrize("kind", ["rename", "sync_directory", "list_directory", "unlink"])
def test_the_director_says_what_the_file_system_refuses(tmp_path, kind):
    """One error; a file has its name or is not there."""
    build = Build(tmp_path, [some_lines(0, 10), some_lines(1, 10)])
    (build.directory / "run-1.tmp").write_bytes(b"left")
    with pytest.raises(StorageError, match="cannot build sorted files: Input/output error"):
        build.run(2, FaultyFiles(RealFiles(), Fault(0, Action.FAIL, kinds={kind}, error=5)))
    if kind == "sync_directory":
        assert build.built() == build.expected()


def test_how_many_lanes_are_of_use():
    """One where the source is small or one file; else as many as there are files with something in them."""
    large = SMALL_SOURCE_BYTES
    assert useful_lanes([large - 1], 8) == useful_lanes([1] * 99, 8) == useful_lanes([], 8) == 1
    assert useful_lanes([10 * large], 8) == useful_lanes([large, 0, 0], 8) == useful_lanes([large] * 9, 1) == 1
    assert useful_lanes([large, 1, 0], 8) == 2
    assert useful_lanes([large] * 9, 8) == 8


def test_what_is_left_for_builders():
    """Each lane takes its process and its reading, and the director is a process, too."""
    costs = {"process_bytes": 20, "reading_bytes": 12}
    assert [builders_bytes(200, lanes=lanes, **costs) for lanes in (1, 2, 3)] == [168, 116, 84]


def test_orders_survive_their_trip():
    """As one line each."""
    task = LaneTask("{}", "/d\n", ("a", "b"), 9, "lz4", METADATA)
    order = LaneOrder(task, 1, 2, 3, 4, 5, 6)
    totals = Totals(3, {0: GroupTotal(1, 20, 2**64 - 1, b"\0\xff"), 5: GroupTotal(2, 30, 7, b"")})
    write = WriteOrder(totals, [5], [SharedRun("/d/run-0-1.tmp", 8, 9)])
    assert "\n" not in order.to_json() + write.to_json()
    assert LaneOrder.from_json(order.to_json()) == order
    found = WriteOrder.from_json(write.to_json())
    assert found == replace(write, totals=replace(totals, groups={5: totals.groups[5]}))


@pytest.mark.parametrize(
    "error",
    [SourceError("m\n", {"a": [1, None]}), Corrupt("f", 3, "r", expected=1, got=b"x".hex()), LimitExceeded("m")],
)
def test_errors_survive_their_trip(error):
    """Class, message and details."""
    line = error_to_json(error)
    found = error_from_json(line)
    assert "\n" not in line
    assert type(found) is type(error)
    assert isinstance(found, GossipKVError)
    assert (str(found), found.message, found.details) == (str(error), error.message, error.details)


def test_one_lane_is_the_build_in_one_process(tmp_path):
    """Byte for byte."""
    build = Build(tmp_path, [some_lines(number, 500) for number in range(3)])
    build.run(2)
    (tmp_path / "one").mkdir()
    metadata = [text.encode("latin-1") for text in METADATA]
    with SortedFileBuilder(tmp_path / "one", build.task.names, metadata=metadata) as building:
        for key, value in build.records:
            building.add(key, value, group_of(key, GROUPS))
        building.finish()
    assert build.built() == [(tmp_path / "one" / name).read_bytes() for name in build.task.names]
