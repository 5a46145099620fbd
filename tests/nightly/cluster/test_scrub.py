"""Damage after the first reading, on a real disk under a real node, is found, named, repaired and served no more.

The disk is a file system in a file (a loop device). So a page can be damaged on the disk alone, in the cache alone, or
in both, while a reader checks every answer.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import Corrupt
from tests.ci.cluster.node_process import PATIENCE_S, UNHURRIED, NodeProcess, connect, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KEYS = 3_000
PAGE = 4096
READS_AFTERWARDS = 20 * KEYS


def value_of(number: int) -> bytes:
    return b"%08d" % (number * 7_654_321 % 99_999_989) * 250


VALUES = {b"key-%05d" % number: value_of(number) for number in range(KEYS)}
VICTIM = b"key-01234"


def run(*command: object) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, check=True, text=True).stdout.strip()


class Disk:
    """A file system in a file: both can be read and changed."""

    def __init__(self, image: Path, place: Path) -> None:
        self.image = image
        self.place = place

    def damage(self, path: Path, good: bytes, *, on_disk: bool, in_cache: bool) -> int:
        """Change a byte of `good`, which occurs once in the file; return where its page begins."""
        bad = good[:100] + b"x" + good[101:]
        at = path.read_bytes().index(good)
        if in_cache:
            self.write_past_the_cache(path, bad, at)
            assert self.read(path, len(good), at) == bad
            if not on_disk:
                self.flip_beneath(bad, good)
        else:
            self.flip_beneath(good, bad)
        assert self.read(path, len(good), at) == (bad if in_cache else good)
        assert self.read(path, len(good), at, os.O_DIRECT) == (bad if on_disk else good)
        return (at + 100) // PAGE * PAGE

    def flip_beneath(self, one: bytes, other: bytes) -> None:
        """Replace `one` by `other` on the disk, beneath the page cache."""
        os.sync()
        with self.image.open("r+b") as file, mmap.mmap(file.fileno(), 0) as found:
            at = found.find(one)
            assert at >= 0
            while at >= 0:  # Freed blocks contain it as well.
                found[at : at + len(one)] = other
                at = found.find(one, at + 1)
            found.flush()

    def write_past_the_cache(self, path: Path, data: bytes, at: int) -> None:
        """Write to the disk and drop the page from the cache, so that mappings read it anew."""
        begin = at // PAGE * PAGE
        with mmap.mmap(-1, 2 * PAGE) as buffer:
            descriptor = os.open(path, os.O_RDWR | os.O_DIRECT)
            try:
                os.preadv(descriptor, [buffer], begin)
                buffer[at - begin : at - begin + len(data)] = data
                os.pwritev(descriptor, [buffer], begin)
            finally:
                os.close(descriptor)

    def read(self, path: Path, size_bytes: int, at: int, flags: int = 0) -> bytes:
        """Read bytes from the cache, or with O_DIRECT from the disk."""
        begin = at // PAGE * PAGE
        with mmap.mmap(-1, 2 * PAGE) as buffer:
            descriptor = os.open(path, os.O_RDONLY | flags)
            try:
                os.preadv(descriptor, [buffer], begin)
            finally:
                os.close(descriptor)
            return buffer[at - begin : at - begin + size_bytes]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mount an ext4 of 96 MiB."""
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(96 << 20)
    try:
        run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", image)
        run("mount", "-o", "loop,noatime", image, place)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system in a file")
    yield Disk(image, place)
    run("umount", place)


class Reader(threading.Thread):
    """Reads every key repeatedly, and compares the values."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.reads = self.wrong = self.corrupt = 0
        self.named: set[tuple[str, int]] = set()
        self._address = address
        self._ended = threading.Event()

    def run(self) -> None:
        with connect(self._address) as client:
            database = client.dataset("db")
            while not self._ended.is_set():
                for number, (key, value) in enumerate(VALUES.items()):
                    if number % 100 == 0 or key == VICTIM:
                        self.look(lambda key=key: [database.get(key)], [value])
                    elif number % 100 == 1:
                        keys = list(VALUES)[number - 1 : number + 99]
                        self.look(lambda keys=keys: database.get_many(keys), [VALUES[key] for key in keys])

    def look(self, ask: Callable[[], list[bytes | None]], values: list[bytes]) -> None:
        try:
            answer = ask()
        except Corrupt as error:
            self.corrupt += 1
            self.named.add((error.file, error.offset))
        else:
            self.wrong += answer != values
        self.reads += len(values)

    def go_on(self, reads: int) -> None:
        until = self.reads + reads
        give_up_s = time.monotonic() + PATIENCE_S
        while self.reads < until:
            assert self.is_alive()
            assert time.monotonic() < give_up_s, self.reads
            time.sleep(0.01)

    def end(self) -> None:
        self._ended.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


def events(node: NodeProcess) -> list[dict[str, object]]:
    return [json.loads(line) for line in node.said().splitlines() if line.startswith("{")]


def await_event(node: NodeProcess, *names: str) -> dict[str, object]:
    """Return the first line of one of these events."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        for line in events(node):
            if line["event"] in names:
                return line
        assert time.monotonic() < give_up_s, node.said()[-3000:]
        time.sleep(0.01)


WAYS = {
    "disk damaged, page cached good": (True, False),
    "page bad, disk good": (False, True),
    "both": (True, True),
}


@pytest.mark.parametrize(("on_disk", "in_cache"), WAYS.values(), ids=WAYS)
def test_damage_after_the_first_reading(disk: Disk, tmp_path: Path, *, on_disk: bool, in_cache: bool) -> None:
    """Damage is found by the scrub or by a read and repaired from the source, and no wrong value follows."""
    source = tmp_path / "source"
    (source / "db/1").mkdir(parents=True)
    (source / "db/1/part-0").write_bytes(b"".join(b"%s\t%s\n" % pair for pair in VALUES.items()))
    options = ("--scrub-period", "4s", "--log-format", "json", "--refresh-period", "off")
    with NodeProcess(disk.place, *options, source=source, changed=UNHURRIED) as node:
        node.ready()
        wait_for(node.address, "db", "1")
        reader = Reader(node.address)
        reader.start()
        reader.go_on(3 * KEYS)
        await_event(node, "scrubbed")
        (path,) = (disk.place / "data/datasets/db/1").glob("*.gkv")
        page = disk.damage(path, VALUES[VICTIM], on_disk=on_disk, in_cache=in_cache)
        passes = len([line for line in events(node) if line["event"] == "scrubbed"])
        damaged = await_event(node, "damaged")
        seen = reader.wrong, reader.corrupt, reader.reads
        reader.go_on(KEYS)
        assert reader.wrong - seen[0] <= 1  # A single answer may have been under way when the damage was met.
        wrong = reader.wrong
        await_event(node, "serves_again")
        reader.go_on(READS_AFTERWARDS)
        reader.end()
        assert reader.wrong == wrong
        names = [line["event"] for line in events(node)]
        assert names[: names.index("damaged")].count("scrubbed") <= passes + 1, "the next whole pass finds it"
        assert str(damaged["error"]).startswith(f"{path}: damaged at byte {page}: ")
        assert reader.reads > READS_AFTERWARDS
        if not in_cache:
            assert (reader.wrong, reader.corrupt) == (0, 0), "the node goes on from the cache until it is mended"
        assert reader.named <= {(str(path), page)}
        with connect(node.address) as client:
            told = client.status("db")["db"]["versions"]["1"]
            assert (told["state"], "error" in told) == ("ACTIVE", False)
            assert told["scrub"].keys() == {"last_s", "bypassed_cache", "damaged_files", "running"}
            counters = client.info()["counters"]
            assert counters["scrubbed_bytes"] >= path.stat().st_size
            assert (counters["scrub_damaged_files"] > 0) >= (on_disk and not in_cache)
        assert node.stop() == 0
