"""Directories as jobs wrote them, each the only version of a database, all served by one node process.

The truth comes with the directories and is independent of the code. The checks of each: every key, absent keys, whole
and partial scans in both directions, the recognised partition function, the counts.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gossipkv.client import blocking
from gossipkv.dataset import finish_version, write_partition
from gossipkv.keyspace.partitioner import FUNCTIONS
from tests.ci.cluster.node_process import NodeProcess
from tests.fixtures.cases import SHARED, Case, cases
from tests.oracle import hashing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(1200)

VERSION = "1"
PATIENCE_S = 200  # The patience without any progress: builds give way to all other processes.
AT_ONCE = 500  # Keys of one request.
FLIPPED = 300  # The offset of a byte within the records of the damaged file.
DAMAGED = "damaged"
LONGEST = "edges"  # Its keys are so long that plain Python takes seconds to hash them.
LONG_KEY_BYTES = 300

TASKS = "sorted-by-tasks"

GIVEN = cases()
# One directory as tasks of another engine write it.
BY_TASKS = replace(
    next(case for case in GIVEN if case.name == "phrases-string-n5"), name=TASKS, format="sorted", fitting=None
)
ALL = [*GIVEN, BY_TASKS]
each_directory = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)

Status = dict[str, object]


def settings_file(place: Path) -> Path:
    """Write the tables of the databases whose fields have other names; some databases have no records."""
    tables = [
        f'[databases.{case.name}]\nkey = "{case.fields[0]}"\nvalue = "{case.fields[1]}"\n'
        for case in ALL
        if case.fields
    ]
    file = place / "node.toml"
    file.write_text("".join(["allow_empty = true\n", *tables]), encoding="utf-8")
    return file


def lay_out(root: Path) -> None:
    """Copy every available directory as a version of a database, and one of them with a flipped byte."""
    for case in GIVEN:
        if case.place.is_dir():
            shutil.copytree(case.place, root / case.name / VERSION)
    write_by_tasks(root / TASKS / VERSION)
    healthy = next(case for case in ALL if case.name == "few-record-zlib")
    shutil.copytree(healthy.place, root / DAMAGED / VERSION)
    file = root / DAMAGED / VERSION / "part-00001"
    data = bytearray(file.read_bytes())
    data[FLIPPED] ^= 1
    file.write_bytes(data)


def write_by_tasks(version: Path) -> None:
    """Write the records of a version as sorted files, one for each partition."""
    assert BY_TASKS.files is not None
    count = len(BY_TASKS.files)
    function = BY_TASKS.written_with or ""
    for number in range(count):
        mine = [pair for pair in BY_TASKS.records.items() if hashing.partition(function, pair[0], count) == number]
        write_partition(version, number, count, mine, function=function, compression="lz4")
    finish_version(version, count)


class Served:
    """A node and its status of each database."""

    def __init__(self, client: blocking.Client) -> None:
        self.client = client
        self.databases: dict[str, Status] = {}

    def until_settled(self) -> None:
        """Wait until each version is active or in error."""
        before, give_up_s = 0, time.monotonic() + PATIENCE_S
        while True:
            self.databases = self.client.status()
            states = [version["state"] for told in self.databases.values() for version in told["versions"].values()]
            settled = states.count("ACTIVE") + states.count("ERROR")
            if 0 < settled == len(states):
                return
            if settled > before:
                before, give_up_s = settled, time.monotonic() + PATIENCE_S
            assert time.monotonic() < give_up_s, self.databases
            time.sleep(0.1)

    def told(self, case: Case) -> Status:
        """Return the status of a directory's version, which must be active."""
        if case.is_shared and not case.place.is_dir():
            pytest.skip("no ../shared/data beside this checkout")
        told = self.databases[case.name]["versions"][VERSION]
        assert told["state"] == "ACTIVE", told
        return told

    def dataset(self, case: Case) -> blocking.Dataset:
        self.told(case)
        return self.client.dataset(case.name)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("real-data")
    lay_out(place / "source")
    options = ("--refresh-period", "off", "--config", str(settings_file(place)))
    with NodeProcess(place, *options, source=place / "source") as node:
        node.ready()
        with blocking.connect(node.address, timeout_ms=60_000) as client:
            served = Served(client)
            served.until_settled()
            yield served


@each_directory
def test_every_key_answers_the_truth(served: Served, case: Case) -> None:
    """Batches return every value, and single reads the same with the version."""
    dataset = served.dataset(case)
    truth = case.records
    assert truth or case.truth == "nothing"
    for keys in batches(list(truth)):
        assert dataset.get_many(keys) == [truth[key] for key in keys]
    some = list(truth)[:: max(1, len(truth) // 100)]
    assert list(dataset.iter_get(some)) == [(key, truth[key], VERSION) for key in some]


def batches(keys: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(keys), AT_ONCE):
        yield keys[start : start + AT_ONCE]


@each_directory
def test_misses_miss(served: Served, case: Case) -> None:
    """Neighbours of present keys, and some other keys, are absent."""
    dataset = served.dataset(case)
    truth = case.records
    near = [near for key in list(truth)[:200] for near in (key + b"\0", key[:-1], key + key, b" " + key, b"\xff" + key)]
    absent = [key for key in [b"", b"\0\0", b"no such key", *near] if key not in truth and len(key) <= 65_535]
    assert len(absent) > len(near) // 2
    for keys in batches(absent):
        assert dataset.get_many(keys) == [None] * len(keys)


@each_directory
def test_scans_are_complete_and_ordered(served: Served, case: Case) -> None:
    """Every record comes once and in order, forward and in reverse; bounds and prefixes limit the scan."""
    dataset = served.dataset(case)
    ordered = sorted(case.records.items())
    assert list(dataset.scan()) == ordered
    assert list(dataset.scan(reverse=True)) == ordered[::-1]
    if ordered:
        start, end = ordered[len(ordered) // 3][0], ordered[-1 - len(ordered) // 3][0]
        middle = [pair for pair in ordered if start <= pair[0] < end]
        assert list(dataset.scan(start=start, end=end)) == middle
        prefix = ordered[len(ordered) // 2][0][:1]
        assert list(dataset.scan(prefix=prefix)) == [pair for pair in ordered if pair[0].startswith(prefix)]
        assert list(dataset.scan(reverse=True, limit=5)) == ordered[: -1 - min(5, len(ordered)) : -1]


def numbers_alike(function: str, case: Case, count: int) -> bool:
    """True if a function gives every key the same number as the function that wrote the directory."""
    meant = case.written_with or "sequins"
    short = [key for key in case.records if len(key) < LONG_KEY_BYTES]
    return all(hashing.partition(function, key, count) == hashing.partition(meant, key, count) for key in short)


@each_directory
def test_the_function_is_recognised(served: Served, case: Case) -> None:
    """The first fitting function that numbers the files so is chosen, with all alike; otherwise `sequins`."""
    told = served.told(case)
    function, alike = told["function"], set(told["alike"] or ())
    if not case.records:
        return  # Without records no function can be distinguished.
    if case.fitting is None:
        assert function == (case.written_with or "sequins")
    elif case.fitting:
        alike_in_numbers = (like for like in case.fitting if numbers_alike(like, case, len(told["partitions"])))
        assert function == (case.fitting[0] if case.written_with == "cascading" else next(alike_in_numbers))
        assert alike | {function} == set(case.fitting)
    else:
        assert function == FUNCTIONS[0] == "sequins"
        assert alike <= {"sequins"}


@each_directory
def test_status_counts(served: Served, case: Case) -> None:
    """The counts of records, duplicates, partitions and strays match the files and add up over the partitions."""
    told = served.told(case)
    assert told["records"] == len(case.records)
    assert told["duplicates"] == case.duplicates
    partitions = told["partitions"]
    assert sum(partition["records"] for partition in partitions) == len(case.records)
    assert sum(partition["duplicates"] for partition in partitions) == case.duplicates
    assert len(partitions) == told["source_files"]
    if case.files is not None:
        assert len(partitions) == len(case.files)
    if case.stray is not None:
        assert told["strays"] >= 1
        first = told["first_stray"]
        assert first["key"] == case.stray["key"].encode()
        assert first["file"].endswith(case.stray["file"])
        assert told["voided"] in FUNCTIONS
    elif case.fitting:
        assert told["strays"] == 0
        assert told["first_stray"] is None


@pytest.mark.parametrize("case", [case for case in ALL if case.truth != LONGEST], ids=lambda case: case.name)
def test_partitions_follow_the_function(served: Served, case: Case) -> None:
    """Each partition's record count follows the recognised function, computed by the JVM's rules in plain Python."""
    told = served.told(case)
    counts = [0] * len(told["partitions"])
    for key in case.records:
        counts[hashing.partition(told["function"], key, len(counts))] += 1
    assert [partition["records"] for partition in told["partitions"]] == counts


def test_a_flipped_byte_is_named(served: Served) -> None:
    """Hadoop's checksum detects the flip: the version is in error, with file and offset, and is not served."""
    told = served.databases[DAMAGED]["versions"][VERSION]
    assert told["state"] == "ERROR"
    assert told["error"]["file"].endswith("part-00001")
    assert told["error"]["offset"] <= FLIPPED


def test_nothing_else_is_in_error(served: Served) -> None:
    """The damaged version neither delays nor spoils any other."""
    troubled = [name for name, told in served.databases.items() if told["versions"][VERSION]["state"] != "ACTIVE"]
    assert troubled == [DAMAGED]
    there = [case.name for case in ALL if case.place.is_dir()]
    assert sorted(served.databases) == sorted([*there, DAMAGED])
    assert SHARED.is_dir() == any(name.startswith("shared-") for name in served.databases)
