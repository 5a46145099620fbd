"""A real node in a real control group, whose limit is lowered below its data and raised again during reads."""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

from gossipkv.environment.memory import mounts_of, numbers
from gossipkv.errors import GossipKVError
from gossipkv.status import sentences
from gossipkv.status.codec import decode
from gossipkv.status.reports import InfoReport
from tests.ci.cluster.node_process import PATIENCE_S, UNHURRIED, NodeProcess, connect, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gossipkv.client import blocking

MIB = 1 << 20
KEYS = [b"key%05d" % number for number in range(16_000)]
VALUE_BYTES = 4_096  # Each value is in a page of its own: 64 MB in all.
CACHED = 24 * MIB  # The part of the values that fits while memory is short.
READS = 2_000  # Per state and reader.
PUMPS = 2


def value_of(key: bytes) -> bytes:
    return hashlib.sha256(key).hexdigest().encode() * (VALUE_BYTES // 64)


class Group:
    def __init__(self, place: Path, limit: str) -> None:
        self.place = place
        self._limit = place / limit

    def allow(self, size_bytes: int) -> None:
        self._limit.write_text(str(size_bytes))

    @property
    def held_bytes(self) -> int:
        """Return the memory of the group that cannot be dropped."""
        counts = numbers((self.place / "memory.stat").read_text(), "total_rss", "total_shmem", "anon")
        return counts["total_rss"] + counts["total_shmem"] if "total_rss" in counts else counts["anon"]


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    """Make a group below the top group, which must be empty again at the end."""
    for mount in mounts_of("memory", Path("/proc/self/mountinfo").read_text(encoding="utf-8")):
        place = Path(mount.place) / f"gossipkv-test-{os.getpid()}"
        made = Group(place, "memory.max" if mount.is_unified else "memory.limit_in_bytes")
        with suppress(OSError):
            place.mkdir()
            try:
                made.allow(1 << 30)
            except OSError:  # This hierarchy does not count memory.
                place.rmdir()
                continue
            try:
                yield made
            finally:
                place.rmdir()
            return
    pytest.skip("needs the right to make a control group that counts memory")


class Reader(threading.Thread):
    """Reads random keys and compares the values, until it is stopped."""

    def __init__(self, address: str, seed: int) -> None:
        super().__init__()
        self.client = connect(address)
        self.seed = seed
        self.right = 0
        self.wrong: list[object] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        draw = random.Random(self.seed)
        try:
            with self.client as client:
                while not self.stopping.is_set():
                    self._read(client, draw.sample(KEYS, 10))
        except (GossipKVError, OSError) as error:
            self.wrong.append(error)

    def _read(self, client: blocking.Client, keys: list[bytes]) -> None:
        dataset = client.dataset("db")
        for found in ([dataset.get(key) for key in keys], dataset.get_many(keys)):
            if found == [value_of(key) for key in keys]:
                self.right += len(keys)
            else:
                self.wrong.append(found)


def read_more(readers: list[Reader]) -> None:
    """Wait until each reader has read more; all values must be right."""
    wanted = [reader.right + READS for reader in readers]
    for reader, right in zip(readers, wanted, strict=True):
        until(lambda reader=reader, right=right: reader.right >= right or reader.wrong)
        assert not reader.wrong, reader.wrong


def until(condition: Callable[[], object]) -> None:
    give_up_s = time.monotonic() + 2 * PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_s
        time.sleep(0.05)


def test_a_limit_that_is_lowered_and_raised_while_it_serves(group: Group, tmp_path: Path) -> None:
    """Files become paged, status says so and why, and they become resident again; no read fails or is wrong."""
    making = tmp_path / "source/db/.v1"
    making.mkdir(parents=True)
    (making / "part-0").write_bytes(b"".join(b"%s\t%s\n" % (key, value_of(key)) for key in KEYS))
    making.rename(tmp_path / "source/db/v1")
    join = f"import os\nopen({str(group.place / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n{UNHURRIED}"
    options = "--build-memory", "64MiB", "--max-parallel-loads", "1", "--pumps", str(PUMPS)
    with NodeProcess(tmp_path, *options, source=tmp_path / "source", changed=join) as node:
        node.ready()
        wait_for(node.address, "db", "v1")
        readers = [Reader(node.address, seed) for seed in range(PUMPS)]  # Each reader is at another pump.
        try:
            for reader in readers:
                reader.start()
            with connect(node.address) as client:
                _follow(client, group, readers)
                sent = [pump["bytes_sent"] for pump in client.info()["pumps"]]
                assert min(sent) > 3 * READS * VALUE_BYTES
        finally:
            for reader in readers:
                reader.stopping.set()
                reader.join()
        assert not any(reader.wrong for reader in readers)
        assert node.stop() == 0, node.said()


def _follow(client: blocking.Client, group: Group, readers: list[Reader]) -> None:
    """Shrink and grow the group; check the status and the reads."""

    def is_paged() -> bool:
        return client.status()["db"]["versions"]["v1"]["paged"]

    until(lambda: client.info()["memory"]["mapped_bytes"] > 0)
    assert (client.info()["memory"]["resident"], is_paged()) == ("all", False)
    read_more(readers)
    group.allow(group.held_bytes + CACHED)
    until(is_paged)
    info = client.info()
    assert info["memory"]["resident"] == "none"
    assert info["memory"]["room_bytes"] < CACHED < info["memory"]["mapped_bytes"]
    line = sentences.of_memory(decode(InfoReport, info))
    assert "mapped, paged: room for" in line
    assert line.endswith(str(PurePosixPath(group.place)))
    read_more(readers)
    group.allow(1 << 30)
    until(lambda: not is_paged())
    assert client.info()["memory"]["resident"] == "all"
    read_more(readers)
