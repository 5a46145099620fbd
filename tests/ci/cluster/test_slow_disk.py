"""A real node whose disk delays or fails cold reads: other clients are served, and all values are right."""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
import pytest

from tests.ci.cluster.node_process import PATIENCE_S, UNHURRIED, NodeProcess, connect, wait_for
from tests.preload import preload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are read by threads on Linux alone")

RECORDS = {b"key%04d" % number: b"%d" % number * 900 for number in range(4_000)}
KEYS = list(RECORDS)
SOME = KEYS[5::401]  # The keys are far apart; a few of their pages may be cached all the same.
PINGS = 20


class Disk:
    """Controls the node's disk: it holds, fails or serves reads of cold pages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.says("go on")

    def says(self, word: str) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_text(word)
        beside.rename(self.path)

    def met(self) -> int:
        """Return how many reads it has held or failed."""
        met = Path(f"{self.path}.met")
        return met.stat().st_size if met.exists() else 0


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "disk")


@pytest.fixture
def node(tmp_path: Path, disk: Disk) -> Iterator[NodeProcess]:
    """Start a paged node on that disk, with all its pages cold."""
    library = preload(Path(__file__).with_name("slow_disk.c"), tmp_path)
    making = tmp_path / "source/db/.v1"
    making.mkdir(parents=True)
    (making / "part-0").write_bytes(b"".join(b"%s\t%s\n" % record for record in RECORDS.items()))
    making.rename(tmp_path / "source/db/v1")
    environ = {"LD_PRELOAD": str(library), "SLOW_DISK": str(disk.path)}
    options = "--residency", "paged"
    with NodeProcess(tmp_path, *options, source=tmp_path / "source", changed=UNHURRIED, environ=environ) as running:
        running.ready()
        wait_for(running.address, "db", "v1")
        with connect(running.address) as client:
            until(lambda: client.status()["db"]["versions"]["v1"]["paged"])
        yield running
        disk.says("go on")
        assert running.stop() == 0, running.said()


def until(condition: Callable[[], object]) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def asked(address: str, *params: object) -> tuple[list[str] | None, list[bytes]]:
    """Return the error and the result of a get, without the timeout of a client."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(msgpack.packb([0, 1, "get", ["db", *params]]))
        unpacker = msgpack.Unpacker()
        while True:
            unpacker.feed(connection.recv(1 << 16))
            for _, _, error, result in unpacker:
                return error, result


def test_others_are_served_while_the_disk_says_nothing(node: NodeProcess, disk: Disk) -> None:
    """A get waits for the disk while pings on other connections are answered, and its value is right."""
    disk.says("hold")
    found: list[bytes | None] = []
    with connect(node.address) as reader, connect(node.address) as other:
        thread = threading.Thread(target=lambda: found.extend(reader.dataset("db").get(key) for key in SOME))
        thread.start()
        until(disk.met)
        for _ in range(PINGS):
            other.ping()
        assert len(found) < len(SOME)
        disk.says("go on")
        thread.join(PATIENCE_S)
        assert found == [RECORDS[key] for key in SOME]


def test_a_read_that_waits_too_long_is_refused(node: NodeProcess, disk: Disk) -> None:
    """A read is refused after the client's timeout, and answered once the disk serves again."""
    disk.says("hold")
    answers = [asked(node.address, key, {"timeout_ms": 100}) for key in SOME]
    refused = [key for key, (error, _) in zip(SOME, answers, strict=True) if error is not None]
    assert {error[0] for error, _ in answers if error is not None} == {"OVERLOADED"}
    assert disk.met()
    disk.says("go on")
    assert [asked(node.address, key)[1][0] for key in refused] == [RECORDS[key] for key in refused]


def test_reads_that_fail_are_tried_where_they_stand(node: NodeProcess, disk: Disk) -> None:
    """All reads by threads fail with EIO; the node goes on and answers from its mapping."""
    disk.says("fail")
    with connect(node.address) as client:
        dataset = client.dataset("db")
        assert [dataset.get(key) for key in SOME] == [RECORDS[key] for key in SOME]
        assert dataset.get_many(KEYS[7::301]) == [RECORDS[key] for key in KEYS[7::301]]
        assert disk.met()
        disk.says("go on")
        assert dict(dataset.scan()) == RECORDS
