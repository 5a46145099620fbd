"""A real node whose files are truncated, or whose disk fails, under a client that knows every value.

The failing disk is a loop device, which cannot read blocks that its backing file lacks.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

import pytest

from gossipkv.errors import Corrupt
from tests.ci.cluster.node_process import PATIENCE_S, UNHURRIED, NodeProcess, connect, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    from gossipkv.client import blocking

# A version that is damaged repeatedly is rebuilt without a pause, as after the first damage.
UNPAUSED = f"{UNHURRIED}\nfrom gossipkv.dataset.lifecycle import copy_states\ncopy_states.LAST_DAMAGE_PAUSE_MS = 0"

FILES = 4
KEYS = [b"key%05d" % number for number in range(2_000)]
ABSENT = [b"absent%05d" % number for number in range(1_000)]
PAGE = 4096


def value_of(key: bytes) -> bytes | None:
    """Return the only value of a key, two pages on average: files exceed the kernel's readahead."""
    if key.startswith(b"absent"):
        return None
    digest = hashlib.sha256(key).hexdigest().encode()
    return digest * (1 + int(digest[:2], 16))


def put_version(source: Path) -> None:
    """Publish the version at the source atomically."""
    making = source / "db/.v1"
    making.mkdir(parents=True)
    for number in range(FILES):
        text = b"".join(b"%s\t%s\n" % (key, value_of(key)) for key in KEYS[number::FILES])
        (making / f"part-{number}").write_bytes(text)
    making.rename(source / "db/v1")


class Reader:
    """A thread that reads all keys in all ways and counts the outcomes."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.counted: Counter[str] = Counter()
        self.wrong: list[object] = []
        self.files: set[str] = set()  # The files that errors named.
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(1)
        self._run = self._threads.submit(self._ask_on)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._threads.shutdown()
        self._run.result()

    def until(self, more: int, outcome: str = "right") -> None:
        """Wait for so many more answers of this outcome."""
        wanted = self.counted[outcome] + more
        wait_until(lambda: self.counted[outcome] >= wanted or self._run.done(), self.counted.copy)
        assert not self._run.done(), self._run.result()

    def _ask_on(self) -> None:
        draw = random.Random(0)
        with connect(self.address) as client:
            while not self._stopping.is_set():
                self._ask(client, draw)

    def _ask(self, client: blocking.Client, draw: random.Random) -> None:
        dataset = client.dataset("db")
        keys = draw.sample(KEYS, 20) + draw.sample(ABSENT, 2)
        start = draw.choice(KEYS)
        first = KEYS.index(start)
        ways: list[tuple[object, Callable[[], object]]] = [
            ([value_of(key) for key in keys], lambda: dataset.get_many(keys)),
            (
                [(key, value_of(key)) for key in KEYS[first : first + 50]],
                lambda: list(dataset.scan(start=start, limit=50)),
            ),
            *((value_of(key), lambda key=key: dataset.get(key)) for key in keys),
        ]
        for expected, way in ways:
            try:
                answer = way()
            except Corrupt as error:
                self.counted["corrupt"] += 1
                self.files.add(error.file)
                continue
            if answer == expected:
                self.counted["right"] += 1
            else:
                self.wrong.append((expected, answer))


def wait_until(condition: Callable[[], object], evidence: Callable[[], object] = str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_s, evidence()
        time.sleep(0.02)


def parts(place: Path) -> list[Path]:
    return sorted((place / "data/datasets/db/v1").glob("*.gkv"))


def all_is_right(client: blocking.Client) -> bool:
    """True if every key is answered; assert that no answer is wrong."""
    try:
        answers = [client.dataset("db").get_many(KEYS[first : first + 50]) for first in range(0, len(KEYS), 50)]
    except Corrupt:
        return False
    assert [value for values in answers for value in values] == [value_of(key) for key in KEYS]
    return True


def told_of(client: blocking.Client) -> dict[str, object]:
    return client.status("db")["db"]["versions"]["v1"]


def inode_of(path: Path) -> int | None:
    """Return the inode of the file, or None while the file is being replaced."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def cut_short(path: Path, cut: Callable[[int], int], reader: Reader, node: NodeProcess) -> None:
    """Truncate a file, and wait until the reader met the damage and a rebuilt file has replaced it."""
    whole = path.stat()
    os.truncate(path, cut(whole.st_size))
    reader.until(1, "corrupt")
    wait_until(lambda: inode_of(path) not in {None, whole.st_ino}, node.said)
    assert path.stat().st_size == whole.st_size


def test_files_cut_short_under_readers(tmp_path: Path) -> None:
    """Wherever files are cut, no value is wrong, the damage is named, and the version is served again."""
    source = tmp_path / "source"
    put_version(source)
    with NodeProcess(tmp_path, source=source, changed=UNPAUSED) as node:
        node.ready()
        wait_for(node.address, "db", "v1")
        cuts: list[Callable[[int], int]] = [
            lambda size: size - 1,
            lambda size: size // 2 // PAGE * PAGE,
            lambda size: size // 3,
            lambda size: size * 9 // 10,
            lambda _: 0,
        ]
        with connect(node.address) as client, Reader(node.address) as reader:
            for number, cut in enumerate(cuts):
                reader.until(200)
                cut_short(parts(tmp_path)[number % FILES], cut, reader, node)
                wait_until(lambda: all_is_right(client), node.said)
                assert "error" not in told_of(client)
            reader.until(200)
            assert client.info()["counters"]["errors_corrupt"] >= len(cuts)
        assert reader.wrong == []
        assert reader.files <= {str(path) for path in parts(tmp_path)}
        assert len(reader.files) == FILES
        assert reader.counted["right"] > 1_000
        assert node.said().count("damaged") >= len(cuts)
        assert node.stop() == 0


def test_a_file_cut_short_that_cannot_be_built_again(tmp_path: Path) -> None:
    """The status names the damage until the source is back, and undamaged keys are answered."""
    source = tmp_path / "source"
    put_version(source)
    with NodeProcess(tmp_path, "--refresh-period", "200ms", source=source, changed=UNHURRIED) as node:
        node.ready()
        wait_for(node.address, "db", "v1")
        (source / "db").rename(source / ".db")
        with connect(node.address) as client, Reader(node.address) as reader:
            wait_until(lambda: "source_files" not in told_of(client))
            path = parts(tmp_path)[0]
            os.truncate(path, path.stat().st_size - 5_000)
            reader.until(1, "corrupt")
            wait_until(lambda: told_of(client)["state"] == "ERROR")
            assert told_of(client)["error"]["file"] == str(path)
            reader.until(200)
            reader.until(20, "corrupt")
            assert told_of(client)["state"] == "ERROR"
            (source / ".db").rename(source / "db")
            wait_until(lambda: all_is_right(client), node.said)
            wait_until(lambda: told_of(client)["state"] == "ACTIVE")
        assert (reader.wrong, reader.files) == ([], {str(path)})
        assert node.stop() == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """Return a function that moves a directory's files to a mounted disk and returns the disk's image."""
    mounted: list[Path] = []

    def put_on_disk(directory: Path) -> Path:
        image = tmp_path / "image"
        aside = tmp_path / "aside"
        shutil.copytree(directory, aside)
        with image.open("wb") as file:
            file.truncate(64 << 20)
        make = ["mkfs.ext4", "-q", "-O", "^has_journal", "-d", str(aside), str(image)]
        for command in (make, ["mount", "-o", "loop,ro", str(image), str(directory)]):
            if shutil.which(command[0]) is None or subprocess.run(command, check=False).returncode != 0:
                pytest.skip("needs the right to mount a loop device")
        mounted.append(directory)
        return image

    yield put_on_disk
    for directory in mounted:
        subprocess.run(["umount", str(directory)], check=True)


def test_a_disk_that_fails_and_comes_back(tmp_path: Path, disk: Callable[[Path], Path]) -> None:
    """No value is wrong while the disk fails; afterwards the version is served again without a build."""
    source = tmp_path / "source"
    put_version(source)
    with NodeProcess(tmp_path, source=source, changed=UNHURRIED) as node:
        node.ready()
        wait_for(node.address, "db", "v1")
        assert node.stop() == 0
    image = disk(tmp_path / "data/datasets/db/v1")
    # Only indexes are in memory beforehand: blocks that were read, the disk may lose.
    with NodeProcess(tmp_path, "--residency", "paged") as node:
        node.ready()
        with connect(node.address) as client:
            contents = image.read_bytes()
            os.truncate(image, 0)
            with Reader(node.address) as reader:
                wait_until(lambda: len(reader.files) == FILES, node.said)
                wait_until(lambda: told_of(client)["state"] == "ERROR", node.said)
                assert "Input/output error" in told_of(client)["error"]["message"]
                reader.until(50, "corrupt")
                assert node.process.poll() is None
                image.write_bytes(contents)
                wait_until(lambda: all_is_right(client), node.said)
                wait_until(lambda: told_of(client)["state"] == "ACTIVE", node.said)
                reader.until(500)
            assert "error" not in told_of(client)
            assert client.info()["counters"]["errors_corrupt"] >= 50
        assert reader.wrong == []
        assert reader.files == {str(path) for path in parts(tmp_path)}
        assert "building" not in node.said().split("ready")[-1]
        assert node.stop() == 0
