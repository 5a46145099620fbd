"""Both halves of the scrub in virtual time: the time of findings, the notes, and the handling of failures."""

import math
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.local.manifest import MANIFEST
from gossipkv.dataset.local.scrubbed import SCRUBBED, read_scrubbed
from gossipkv.dataset.local.store import VersionStore
from gossipkv.dataset.local.version import Version, open_version
from gossipkv.dataset.scrub.parent import ReadBackError
from gossipkv.dataset.scrub.read_back import ReadBackOutcome, read_back
from gossipkv.dataset.scrub.scrub import (
    MAX_BYTES_PER_SECOND,
    MAX_SLICES,
    Scrub,
    bytes_per_second,
    due_ms,
    next_due,
    put_off,
)
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt
from gossipkv.log import Log
from gossipkv.storage.builder import SortedFileBuilder
from gossipkv.storage.document import write_document
from gossipkv.storage.sorted_file import SortedFile
from tests.unit.dataset.sources import MEMORY_BYTES, put_version
from tests.world.faulty_files import Action, Fault, FaultyFiles
from tests.world.logs import capture_logs

PERIOD_S = 86_400
WALL_MS = 1_700_000_000_000


class Clock:
    """A wall clock over Trio's."""

    def wall_ms(self):
        return WALL_MS + round(trio.current_time() * 1000)


class AtOnce:
    """A fake of worker threads that runs at once."""

    async def run(self, function, *args):
        await trio.lowlevel.checkpoint()
        return function(*args)


class Place:
    """A store with versions, and a scrub that reads them at once."""

    def __init__(self, root):
        self.source = root / "source"
        self.source.mkdir()
        (root / "data").mkdir()
        self.files = FaultyFiles(RealFiles())
        self.store = VersionStore(root / "data", self.files)
        self.store.prepare()
        self.versions = []
        self.damage = []
        self.read = []  # The times and versions of readings.
        self.clock = Clock()
        self.failing = None  # The error that a reading raises.
        self.takes_s = 0.0

    def build(self, name, *contents):
        """Build a version at this moment and open it."""
        version = put_version(RealFiles(), self.source, name, contents or [b"a\t1\n"])
        directory = self.store.begin_build("db", name)
        perform(BuildJob.of(version, str(directory)), RealFiles(), BuildResources(MEMORY_BYTES))
        self.store.publish("db", name)
        return self.open(name)

    def open(self, name, built_ms=None):
        """Open a version as a restart does; its manifest was made by another clock than the test's."""
        version = open_version(self.files, self.store.version_path("db", name), "db", name)
        if version.scrubbed is None:
            version.checked_ms = self.clock.wall_ms() if built_ms is None else built_ms
        self.versions.append(version)
        return version

    async def read_back(self, job, on_damage):
        self.read.append((round(trio.current_time()), job.version))
        await trio.sleep(self.takes_s)
        if self.failing is not None:
            raise self.failing
        return ReadBackOutcome(
            *read_back(RealFiles(), job, wait=lambda _: None, on_damage=on_damage), bypassed_cache=True
        )

    def scrub(self, period_s=PERIOD_S):
        return Scrub(
            period_s * 1000,
            versions=lambda: self.versions,
            on_damage=lambda version, damage: self.damage.append((version, damage)),
            read_back=self.read_back,
            store=self.store,
            threads=AtOnce(),
            clock=self.clock,
            log=Log("gossipkv.test"),
        )


@pytest.fixture
def place(tmp_path):
    """Yield a store without versions, and close those that the test has opened."""
    found = Place(tmp_path)
    yield found
    for version in found.versions:
        version.close()


class Manifest:
    """The part of a manifest that the first half uses."""

    def __init__(self, name):
        self.identity = type("Identity", (), {"database": "db", "version": name, "partitions": 1})()
        self.size_bytes = 1


def file_of(directory, pages):
    """Return a sorted file of at least so many pages, in mutable memory."""
    with SortedFileBuilder(directory, ["f"]) as builder:
        for number in range(pages):
            builder.add(b"%06d" % number, b"%06d" % number * 680)
        builder.finish()
    return bytearray(Path(directory, "f").read_bytes())


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    overwrite(path, data)


def overwrite(path, data):
    path.write_bytes(data)


def checked(version):
    """Count the checked pages; a long file is sampled."""
    return sum(
        file.is_checked(page) for file in version.files for page in range(0, max(1, file.size_bytes // 4096 - 20), 50)
    )


async def test_every_page_is_checked_again_within_a_period(autojump_clock, place, tmp_path):
    """In large files and in many small ones, no check is ever older than a period."""
    images = [file_of(tmp_path, 10_000)] + [file_of(tmp_path, 3)] * 100
    version = Version(Manifest("v1"), [SortedFile(memoryview(image)) for image in images])
    place.takes_s = math.inf  # The other half finds nothing.
    place.versions.append(version)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place.scrub().run)
        for after_s in (0, 12_345, PERIOD_S / 3):
            await trio.sleep(after_s)
            for file in version.files:
                file.verify()
            before = total = checked(version)
            for _ in range(100):
                await trio.sleep(PERIOD_S / 100)
                after = checked(version)
                assert before - after <= total / 5, "not all at once"
                before = after
            await trio.sleep(PERIOD_S / MAX_SLICES)
            assert (checked(version), total) == (0, 301)
        nursery.cancel_scope.cancel()


async def test_a_page_that_went_bad_in_the_cache_is_met_within_a_period(autojump_clock, place, tmp_path):
    """A page that was read a hundred times is not served any more; the disk is not asked."""
    image = file_of(tmp_path, 5)
    version = Version(Manifest("v1"), [SortedFile(memoryview(image), name="part")])
    place.versions.append(version)
    place.takes_s = math.inf  # The other half finds nothing.
    at = image.index(b"000002" * 680)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place.scrub().run)
        for key in (b"000001", b"000002"):
            assert version.files[0].get(key) == key * 680
        image[at] ^= 1
        answers = 0
        with trio.fail_after(PERIOD_S + 1):
            while version.files[0].is_checked(at // 4096):
                assert version.files[0].get(b"000002") != b"000002" * 680
                answers += 1
                await trio.sleep(60)
        assert answers > 0
        with pytest.raises(Corrupt) as met:
            version.files[0].get(b"000002")
        assert met.value.details["offset"] == at // 4096 * 4096
        nursery.cancel_scope.cancel()
    assert place.damage == []


async def test_versions_are_read_back_in_turn_and_it_is_noted(autojump_clock, place):
    """Each version is read once in three quarters of a period; status and restarts know the time."""
    old, new = place.build("v1"), place.build("v2")
    place.takes_s = 100
    scrub = place.scrub()
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scrub.run)
            await trio.sleep(PERIOD_S * 3 // 4 + 150)
            assert scrub.report(new)["running"]
            assert scrub.report(old) == {
                "last_s": pytest.approx(50, abs=60), "bypassed_cache": True, "damaged_files": 0, "running": False,
            }  # fmt: skip
            assert scrub.report(new)["last_s"] is None
            await trio.sleep(PERIOD_S)
            nursery.cancel_scope.cancel()
    times = [time for time, _ in place.read]
    assert [name for _, name in place.read] == ["v1", "v2", "v1", "v2"]
    assert all(0 <= time - due <= 200 for time, due in zip(times, [64_800, 64_900, 129_700, 129_800], strict=True))
    assert [line["event"] for line in logs] == ["scrubbed"] * 4
    assert (scrub.counts.versions, scrub.counts.damaged_files) == (4, 0)
    again = place.open("v1")
    assert again.scrubbed == old.scrubbed
    assert again.checked_ms == old.checked_ms


async def test_restarts_do_not_begin_anew(autojump_clock, place):
    """A node that restarts every few hours reads as often as one that runs on."""
    place.build("v1")
    for _ in range(20):
        with trio.move_on_after(PERIOD_S / 4):
            await place.scrub().run()
        place.versions.pop().close()
        place.open("v1", built_ms=WALL_MS)
    assert len(place.read) == 6


async def test_damage_on_the_disk_is_told_and_not_noted_as_whole(autojump_clock, place):
    """Each file is named although the cache has it intact, and is not read again and again."""
    version = place.build("v1", b"a\t1\n", b"b\t2\n")
    directory = place.store.version_path("db", "v1")
    for name in ("part-00000.gkv", "part-00001.gkv"):
        flip(Path(directory, name), 70)
    scrub = place.scrub()
    with trio.move_on_after(PERIOD_S * 1.4):
        await scrub.run()
    assert [(found, Path(damage.file).name, damage.offset) for found, damage in place.damage] == [
        (version, "part-00000.gkv", 0), (version, "part-00001.gkv", 0),
    ]  # fmt: skip
    assert scrub.report(version)["damaged_files"] == scrub.counts.damaged_files == 2
    assert read_scrubbed(RealFiles(), directory) is None
    assert len(place.read) == 1


async def test_a_version_that_was_let_go_is_read_no_further(autojump_clock, place):
    """Damage in its files does not concern a later version of the same name."""
    version = place.build("v1")
    place.takes_s = PERIOD_S
    async with trio.open_nursery() as nursery:
        scrub = place.scrub()
        nursery.start_soon(scrub.run)
        await trio.sleep(PERIOD_S * 3 // 4 + 100)
        scrub.versions_changed()
        assert scrub.report(version)["running"]
        place.versions.remove(version)
        scrub.versions_changed()
        await trio.sleep(1)
        assert not scrub.report(version)["running"]
        await trio.sleep(PERIOD_S)
        assert version.scrubbed is None
        nursery.cancel_scope.cancel()
    version.close()
    assert place.damage == []


@pytest.mark.parametrize("error", [ReadBackError("killed"), OSError(12, "no memory")])
async def test_a_reading_that_fails_is_tried_again(autojump_clock, place, error):
    """A failure says nothing of the bytes, and retries are spaced out."""
    version = place.build("v1")
    place.failing = error
    async with trio.open_nursery() as nursery:
        with capture_logs() as logs:
            nursery.start_soon(place.scrub().run)
            await trio.sleep(PERIOD_S)
            assert 2 <= len(place.read) <= 5
            assert {line["event"] for line in logs} == {"scrub_failed"}
            assert version.scrubbed is None
            place.failing = None
            await trio.sleep(PERIOD_S / 8)
        nursery.cancel_scope.cancel()
    assert version.scrubbed is not None


async def test_what_cannot_be_noted_is_known_nevertheless(autojump_clock, place):
    """The disk may be full or read-only."""
    version = place.build("v1")
    place.files.strike(Fault(0, Action.FAIL, kinds={"create"}))
    with capture_logs() as logs, trio.move_on_after(PERIOD_S):
        await place.scrub().run()
    assert [line["event"] for line in logs] == ["scrubbed", "cannot_note_scrub"]
    assert version.scrubbed is not None
    assert len(place.read) == 1


async def test_without_a_period_nothing_is_done(autojump_clock, place):
    version = place.build("v1")
    version.checked_ms = 0
    with trio.fail_after(1):
        await place.scrub(0).run()
    assert place.read == []


@pytest.mark.parametrize("document", [b"", b"dust", None])
async def test_a_note_that_is_damaged_is_none(place, document):
    """The note only decides the time of the next reading."""
    version = place.build("v1")
    directory = place.store.version_path("db", "v1")
    if document is None:
        write_document(RealFiles(), directory / SCRUBBED, "SCRUBBED", {"at_ms": "yesterday"})
    else:
        overwrite(Path(directory, SCRUBBED), document)
    again = open_version(RealFiles(), directory, "db", "v1")
    assert again.scrubbed is None
    assert again.checked_ms == RealFiles().stat(directory / MANIFEST).modified_ns // 1_000_000
    again.close()
    assert version.scrubbed is None


DAY_MS = 86_400_000


@dataclass(eq=False)
class Held:
    """The part of a version that the schedule uses."""

    name: str
    size_bytes: int
    checked_ms: int
    database: str = "db"


def test_between_two_readings_of_a_byte_there_is_at_most_a_period():
    """The bound holds for any number, size and age of versions; readings are never much closer than half a period."""
    chance = random.Random(1)
    for _ in range(200):
        period_ms = chance.choice((10_000, 3_600_000, DAY_MS))
        most_bytes = MAX_BYTES_PER_SECOND // 1000 * period_ms // 4 // 20
        held = [
            Held(
                str(number),
                chance.randrange(1, 1 << chance.randrange(1, most_bytes.bit_length())),
                -chance.randrange(period_ms),
            )
            for number in range(chance.randrange(1, 20))
        ]
        begun = {version: version.checked_ms for version in held}
        ended = dict(begun)
        now_ms = 0
        while now_ms < 10 * period_ms:
            version = next_due(held, now_ms, period_ms)
            if version is None:
                now_ms = min(due_ms(version, period_ms) for version in held)
                continue
            took_ms = version.size_bytes * 1000 / bytes_per_second(sum(one.size_bytes for one in held), period_ms)
            if now_ms > 2 * period_ms:  # The versions that were overdue at the beginning are done.
                first_byte_ms, last_byte_ms = now_ms - begun[version], now_ms + took_ms - ended[version]
                assert max(first_byte_ms, last_byte_ms) <= period_ms + 2, version
                assert first_byte_ms >= period_ms * 0.74
            begun[version] = now_ms
            now_ms = int(now_ms + took_ms) + 1
            ended[version] = version.checked_ms = now_ms
        assert min(ended.values()) > 8 * period_ms


def test_a_clock_that_was_set_back_does_not_put_it_off():
    """The next reading keeps its distance, counted from the time at which the setback was noticed."""
    version = Held("v1", 1, 50 * DAY_MS)
    assert next_due([version], DAY_MS, DAY_MS) is None
    assert due_ms(version, DAY_MS) == DAY_MS + DAY_MS * 3 // 4
    assert next_due([version], 2 * DAY_MS, DAY_MS) is version
    assert next_due([], DAY_MS, DAY_MS) is None


def test_the_one_that_waits_longest_comes_first():
    held = [Held("a", 1, 2000), Held("b", 1, 1000), Held("c", 1, 3000)]
    assert next_due(held, DAY_MS * 3 // 4 + 500, DAY_MS) is None
    assert next_due(held, DAY_MS * 2, DAY_MS).name == "b"


def test_one_that_was_refused_lets_others_go_first():
    """The refused version waits while the others are read as if it were absent."""
    stuck, other = Held("a", 1, 0), Held("b", 1, 1)
    assert next_due([stuck, other], DAY_MS, DAY_MS) is stuck
    put_off(stuck, DAY_MS, DAY_MS)
    assert next_due([stuck, other], DAY_MS, DAY_MS) is other
    assert due_ms(stuck, DAY_MS) == DAY_MS + DAY_MS // 16


def test_the_rate_has_bounds():
    """Little data is read soon, and much data never takes the whole disk."""
    assert bytes_per_second(10_000, DAY_MS) == 4 << 20
    assert bytes_per_second(1 << 40, DAY_MS) == (1 << 40) * 4 // 86_400
    assert bytes_per_second(1 << 50, DAY_MS) == 256 << 20
