"""Reads of pages that are not in memory are correct, and delay no other request."""

from __future__ import annotations

import contextlib
import os
import random
from typing import TYPE_CHECKING, NamedTuple

import msgpack
import pytest

from gossipkv.keyspace import partitioner
from gossipkv.storage import sigbus
from gossipkv.storage.sorted_file import SortedFile
from gossipkv.wire import rpc
from tests.oracle import scan
from tests.unit.serving.driven import BuiltVersion, Peer, make_core, one_database, publish
from tests.unit.serving.test_serving_slow import Served
from tests.world.cold_pages import pages_come_and_go
from tests.world.sorted_files import build

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.wire.rpc import Value

RECORDS = {b"key%04d" % number: b"%d" % number * (1 + number % 90) for number in range(3000)}
SORTED = sorted(RECORDS.items())
KEYS = [key for key, _ in SORTED]


class Question(NamedTuple):
    """A request, and the answer of a plain dict."""

    method: str
    params: list[Value]
    answer: Value


def question(chance: random.Random) -> Question:
    """Draw a get, a batch or a page of a scan."""
    match chance.randrange(4):
        case 0:
            asked = [chance.choice([*KEYS, b"absent"]) for _ in range(chance.choice([1, 40, 400]))]
            return Question("get_many", ["db", [*asked]], [RECORDS.get(key) for key in asked])
        case 1:
            start, end = sorted(chance.sample(KEYS, 2))
            limit, reverse = chance.choice([1, 10, 1000]), chance.random() < 0.5
            records, _ = scan.page(SORTED, start, end, reverse=reverse, limit=limit, page_bytes=1 << 20)
            options: dict[Value, Value] = {"start": start, "end": end, "limit": limit, "reverse": reverse}
            return Question("scan", ["db", options], [[key, value] for key, value in records])
        case _:
            key = chance.choice([*KEYS, b"absent"])
            return Question("get", ["db", key], RECORDS.get(key))


class Client:
    """A connection with several open questions."""

    def __init__(self, served: Served) -> None:
        self.socket: socket.socket = served.connect()
        self.unpacker = msgpack.Unpacker(max_buffer_size=1 << 28)
        self.asked: dict[int, Question] = {}
        self.answered = 0

    def ask(self, msgid: int, question: Question) -> None:
        """Send a question; the loop reads it in its next round."""
        self.asked[msgid] = question
        self.socket.settimeout(None)
        self.socket.sendall(rpc.request(msgid, question.method, question.params))
        self.socket.settimeout(0)

    def look(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := self.socket.recv(1 << 22):
                self.unpacker.feed(data)
        for _, msgid, error, result in self.unpacker:
            question = self.asked.pop(msgid)
            assert error is None, (question, error)
            assert result[0] == question.answer, question
            self.answered += 1

    def is_done(self) -> bool:
        self.look()
        return not self.asked


def serve_and_compare(served: Served, chance: random.Random, questions: int) -> None:
    """Ask over several connections at once, and wait for all answers."""
    clients = [Client(served) for _ in range(4)]
    for msgid in range(questions):
        clients[msgid % 4].ask(msgid, question(chance))
        if msgid % 8 == 7:
            served.step()
        for client in clients:
            client.look()
    served.until(lambda: not [client for client in clients if not client.is_done()])
    assert sum(client.answered for client in clients) == questions
    assert served.hand_offs == []


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Return a loop over real sockets without the tested data."""
    loop = Served(tmp_path)
    yield loop
    for client in loop.clients:
        client.close()
    loop.loop.close()


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_read_from_pages_that_come_and_go_is_right(
    served: Served, tmp_path: Path, compression: str, seed: int
) -> None:
    """Gets, batches and scans are correct while pages leave memory again and again."""
    with pages_come_and_go(seed):
        version = made(tmp_path / "cold", compression)
    served.core.publish(publish([(version, True)]).table())
    serve_and_compare(served, random.Random(seed), 200)
    counters = served.core.counters()
    assert counters["cold_reads"] > 50
    assert counters["cold_pages_failed"] > 0
    assert counters["cold_pages"] >= counters["cold_pages_failed"]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_real_pages_that_are_not_in_memory_are_read(served: Served, tmp_path: Path, compression: str) -> None:
    """Files are dropped from the system's cache repeatedly, and threads read them."""
    version = made(tmp_path / "real", compression)
    served.core.publish(publish([(version, True)]).table())
    for seed in range(5):
        for file in version.files:
            assert file is not None
            file.set_paged(False)
            file.set_paged(True)  # This drops cached pages.
        serve_and_compare(served, random.Random(seed), 40)
    assert served.core.counters()["cold_pages_failed"] == 0


def test_a_ping_waits_for_no_page(served: Served, tmp_path: Path) -> None:
    """A ping is answered while another connection waits for pages, of which a step reads one or two."""
    made(tmp_path / "cold", "none")
    cold, other, chance = Client(served), Client(served), random.Random(1)
    for turn in range(5):
        with pages_come_and_go(turn):  # No page is in memory.
            files: list[SortedFile | None] = [SortedFile(path) for path in sorted((tmp_path / "cold").iterdir())]
        served.core.publish(publish([(BuiltVersion("db", "v1", files), True)]).table())
        for number, key in enumerate(chance.sample(KEYS, 400)):
            cold.ask(number, Question("get", ["db", key], RECORDS[key]))
        served.step(0)
        # The first letter of "pong": answers are compared by their first element.
        other.ask(turn, Question("ping", [], "p"))
        while not other.is_done():
            served.step(0)
        assert not cold.is_done()
        served.until(cold.is_done)


def test_who_leaves_while_its_pages_are_read_leaves_nothing(served: Served, tmp_path: Path) -> None:
    """Pages for a closed connection are dropped, and the table releases its files afterwards."""
    with pages_come_and_go(2):
        version = made(tmp_path / "cold", "none")
    served.core.publish(publish([(version, True)]).table())
    for msgid in range(60):
        client = Client(served)
        client.ask(msgid, question(random.Random(msgid)))
        served.step()
        client.socket.close()
        served.step()
    served.core.publish(one_database(tmp_path, {b"other": b"x"}).table())
    for _ in range(1000):
        served.step()
    for file in version.files:
        assert file is not None
        file.close()  # A pinned file would raise BufferError.


@pytest.mark.parametrize("method", ["get", "get_many", "scan"])
def test_a_file_that_is_cut_short_is_handed_off(served: Served, tmp_path: Path, method: str) -> None:
    """An unreadable page is damage, which is reported to Python; the loop goes on."""
    served.core.publish(publish([(cut_short(tmp_path / "cut"), True)]).table())
    client = Client(served)
    params: list[Value] = ["db", {"get": KEYS[7], "get_many": [KEYS[7], KEYS[8]], "scan": {"limit": 10}}[method]]
    client.ask(1, Question(method, params, None))
    served.until(lambda: bool(served.hand_offs))
    assert served.hand_offs[0].waiting.method == method.encode()
    assert served.core.counters()["cold_pages_failed"] > 0
    client.asked.pop(1)
    client.ask(2, Question("ping", [], "p"))
    served.until(client.is_done)


def test_a_read_owes_nothing_to_the_one_before(served: Served, tmp_path: Path) -> None:
    """Each read retries an unreadable page as often, whatever the previous read in the same slot met."""
    served.core.publish(publish([(cut_short(tmp_path / "cut"), True)]).table())
    client = Client(served)
    failed = [0]
    for partition in range(3):
        key = next(key for key in KEYS if partitioner.partition("sequins", key, 3) == partition)
        client.ask(partition, Question("get", ["db", key], None))
        served.until(lambda handed=partition: len(served.hand_offs) > handed)
        failed.append(served.core.counters()["cold_pages_failed"])
    assert failed == [0, 2, 4, 6]


def test_a_read_waits_for_no_page_of_one_that_has_left(tmp_path: Path) -> None:
    """The client leaves while its page is read; the next user of the slot is answered all the same."""
    with pages_come_and_go(3):
        version = made(tmp_path / "cold", "none")
    core = make_core()
    core.publish(publish([(version, True)]).table())
    stays = Peer(core)
    waited = 0
    for number, key in enumerate(KEYS[:100]):
        leaves = stays.driver.open(stays.now_ms)
        stays.driver.feed(leaves, rpc.request(1, "get", ["db", KEYS[1000 + number]]), stays.now_ms)
        waited += core.counters()["in_flight"]
        stays.driver.close(leaves)
        stays.send(rpc.request(2, "get", ["db", key]))
        for _ in range(1000):
            stays.driver.run(stays.now_ms)
            stays.take()
        assert stays.answers() == [[1, 2, None, [RECORDS[key], "v1"]]]
    assert waited > 5, "or no page was cold"


def cut_short(directory: Path) -> BuiltVersion:
    """Return a version with no page in memory, whose files are cut after the first page."""
    sigbus.install()
    version = made(directory, "none")
    for file in version.files:
        assert file is not None
        file.set_paged(True)
    for path in directory.iterdir():
        os.truncate(path, 4096)
    return version


def made(directory: Path, compression: str) -> BuiltVersion:
    """Return a version of three partitions by Sequins' function."""
    directory.mkdir()
    groups: list[dict[bytes, bytes]] = [{}, {}, {}]
    for key, value in RECORDS.items():
        groups[partitioner.partition("sequins", key, 3)][key] = value
    files: list[SortedFile | None] = []
    for number, group in enumerate(groups):
        build(directory / f"{number}.gkv", group.items(), compression=compression)
        files.append(SortedFile(directory / f"{number}.gkv"))
    return BuiltVersion("db", "v1", files)
