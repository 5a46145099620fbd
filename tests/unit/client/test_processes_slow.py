"""Forks, threads, signals and ends: a client serves all of them, and no answer goes to another request."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from gossipkv.client import blocking, channels
from gossipkv.errors import TimedOut, Unavailable
from tests.unit.client.behaviours import RECORDS
from tests.unit.client.fake_node import Connection, FakeNode, store

ROOT = Path(__file__).parents[3]
HEAD = """
import os, sys
import gossipkv
address = sys.argv[1]

def in_child(act):
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def run(program: str, address: str) -> None:
    """Run a program in a single-threaded process, which may fork."""
    command = [sys.executable, "-W", "error", "-c", HEAD + textwrap.dedent(program), address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_reads_over_a_connection_of_its_own():
    """The child dials its own connection, and the parent's is not affected, not even by a close."""
    program = """
        client = gossipkv.blocking.connect(address, timeout_ms=60_000)
        data = client.dataset("geo")
        assert data.get("key001") == b"value 1"

        def child():
            assert data.get("key002") == b"value 2"
            assert data.get_many(["key003"]) == [b"value 3"]
            client.close()

        in_child(child)
        in_child(client.close)
        assert data.get("key004") == b"value 4"
        client.close()
        """
    with FakeNode(store(RECORDS)) as node:
        run(program, node.address)
        assert node.accepted == 2


def test_a_fork_amid_a_pipeline():
    """Both processes get every key once and in order; the child repeats its missing requests."""
    program = """
        with gossipkv.blocking.connect(address, timeout_ms=60_000) as client:
            keys = [b"key%03d" % number for number in range(40)]
            loop = client.dataset("geo").iter_get(keys, in_flight=10)
            found = [next(loop) for _ in range(7)]

            def rest():
                assert [key for key, _, _ in [*found, *loop]] == keys

            in_child(rest)
            assert client.dataset("geo").get("key001") == b"value 1"
            rest()
        """
    with FakeNode(store(RECORDS)) as node:
        run(program, node.address)
        assert node.accepted == 3  # A get amid a loop has a connection of its own.


def test_a_fork_while_another_thread_is_amid_a_request():
    """A child that is forked during another thread's request can read: no place stays taken."""
    program = """
        import threading, warnings
        from gossipkv.client import channels
        warnings.simplefilter("ignore", DeprecationWarning)  # The fork with threads is the point.
        client = gossipkv.blocking.connect(address, timeout_ms=60_000)
        data = client.dataset("geo")
        other = threading.Thread(target=data.get, args=(b"slow",))
        other.start()
        while len(client._channels._free) == channels.MAX_CHANNELS:
            pass

        def child():
            assert data.get("key001") == b"value 1"

        in_child(child)
        other.join()
        client.close()
        """
    answer = threading.Event()

    def slow(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            if request[2][1] == b"slow":
                assert answer.wait(30)
            else:
                answer.set()
            connection.answer(request[0], [RECORDS.get(request[2][1]), "v1"])

    with FakeNode(slow) as node:
        run(program, node.address)


def test_a_trio_client_after_a_fork():
    """The child gets a clear error, and the parent's connection is not affected."""
    program = """
        import trio

        async def main():
            async with gossipkv.connect(address, timeout_ms=60_000) as client:
                data = client.dataset("geo")
                assert await data.get("key001") == b"value 1"

                def child():
                    try:
                        data.get("key001").send(None)
                    except RuntimeError as error:
                        assert "forked" in str(error)
                    else:
                        raise AssertionError("no error")

                in_child(child)
                assert await data.get("key002") == b"value 2"

        trio.run(main)
        """
    with FakeNode(store(RECORDS)) as node:
        run(program, node.address)
        assert node.accepted == 1


def test_two_threads_at_once():
    """Each has a connection of its own while it asks, and the answer to its own request."""
    asked, go = [], threading.Event()

    def slow(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            asked.append(request)
            assert go.wait(60)
            connection.answer(request[0], [request[2][1], "v1"])

    found = []
    with FakeNode(slow) as node, blocking.connect(node.address, timeout_ms=60_000) as client:
        data = client.dataset("geo")
        threads = [threading.Thread(target=lambda key=key: found.append((key, data.get(key)))) for key in ("a", "b")]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(asked) == 2)
        go.set()
        for thread in threads:
            thread.join()
        assert sorted(found) == [("a", b"a"), ("b", b"b")]
        assert node.accepted == 2


def test_many_threads_share_a_client():
    """8,000 calls of 16 threads: each has its own answer, and there are no more connections than threads."""

    def read(number: int) -> None:
        for at in range(500):
            key = f"key{(number + at) % 50:03}"
            assert data.get(key) == RECORDS[key.encode()]

    failures = []
    with FakeNode(store(RECORDS)) as node, blocking.connect(node.address, timeout_ms=60_000) as client:
        data = client.dataset("geo")
        threads = [threading.Thread(target=lambda n=n: failures.extend(attempt(read, n))) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert 1 <= node.accepted <= 16


def test_more_threads_than_connections(monkeypatch):
    """A thread waits until another one is done, and its error says why if none is in time."""
    monkeypatch.setattr(channels, "MAX_CHANNELS", 1)
    asked, go = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            asked.set()
            assert go.wait(60)
            connection.answer(request[0], [request[2][1], "v1"])

    found = []
    with FakeNode(slow) as node, blocking.connect(node.address, timeout_ms=60_000) as client:
        data = client.dataset("geo")
        threads = [threading.Thread(target=lambda key=key: found.append((key, data.get(key)))) for key in ("a", "b")]
        threads[0].start()
        assert asked.wait(60)
        with pytest.raises(TimedOut, match="all 1 connections of this client were in use until the deadline"):
            data.get("late", timeout_ms=20)
        threads[1].start()
        wait_until(lambda: client._channels._waiting)
        go.set()
        for thread in threads:
            thread.join()
        assert sorted(found) == [("a", b"a"), ("b", b"b")]
        assert node.accepted == 1


def test_a_close_by_another_thread():
    """A thread that waits for an answer, or for a connection, gets an error at once."""
    asked = threading.Event()

    def silent(connection: Connection) -> None:
        while connection.next_request() is not None:
            asked.set()

    failures = []
    with FakeNode(silent) as node:
        client = blocking.connect(node.address, timeout_ms=60_000)
        data = client.dataset("geo")
        other = threading.Thread(target=lambda: failures.extend(attempt(data.get, "k")))
        other.start()
        assert asked.wait(60)
        client.close()
        other.join(30)
        assert [str(failure) for failure in failures] == ["the client is closed"]
        with pytest.raises(Unavailable, match="the client is closed"):
            data.get("k")


def wait_until(holds) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def attempt(act, *arguments) -> list[BaseException]:
    try:
        act(*arguments)
    except BaseException as error:  # noqa: BLE001  # Told to the test.
        return [error]
    return []


def test_a_client_cannot_be_pickled():
    """Pools and Spark get a clear error."""
    with (
        FakeNode(store(RECORDS)) as node,
        blocking.connect(node.address, timeout_ms=60_000) as client,
        pytest.raises(TypeError, match="connect in each process"),
    ):
        client.__reduce__()


def test_a_signal_handler_asks_amid_a_request():
    """The handler's request has a connection of its own, and both have their answers."""
    program = """
        import signal
        client = gossipkv.blocking.connect(address, timeout_ms=60_000)
        data, found = client.dataset("geo"), []
        signal.signal(signal.SIGALRM, lambda *_: found.append(data.get("key001")))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert data.get("slow") == b"slow"
        assert found == [b"value 1"], found
        client.close()
        """
    answered = threading.Event()

    def slow(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            if request[2][1] == b"slow":
                assert answered.wait(30)
            connection.answer(request[0], [RECORDS.get(request[2][1], b"slow"), "v1"])
            answered.set()

    with FakeNode(slow) as node:
        run(program, node.address)
        assert node.accepted == 2


def test_an_interrupted_request_leaves_no_answer_behind():
    """After Ctrl-C amid a request the next one has a connection of its own, and its own answer."""
    program = """
        import signal
        client = gossipkv.blocking.connect(address, timeout_ms=60_000)
        data = client.dataset("geo")
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            data.get("slow")
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("not interrupted")
        assert data.get("key002") == b"value 2"
        client.close()
        """

    def slow(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            if request[2][1] != b"slow":
                connection.answer(request[0], [RECORDS.get(request[2][1]), "v1"])

    with FakeNode(slow) as node:
        run(program, node.address)
        assert node.accepted == 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_of_processes(method):
    """Workers of `multiprocessing` use the client that they inherited, or one that each makes."""
    program = f"""
        import multiprocessing
        import tests.unit.client.pool_worker as worker
        worker.begin(address)
        assert worker.read(1) == b"value 1"
        with multiprocessing.get_context({method!r}).Pool(2, worker.begin, (address,)) as pool:
            assert pool.map(worker.read, range(40), chunksize=5) == [b"value %d" % number for number in range(40)]
        assert worker.read(2) == b"value 2"
        """
    with FakeNode(store(RECORDS)) as node:
        run(program, node.address)
        assert node.accepted in {2, 3}  # One worker may do all.


def test_pre_forked_workers_with_threads():
    """A client that was made before the fork, as by gunicorn's preload, serves the threads of each worker."""
    program = """
        import threading
        client = gossipkv.blocking.connect(address, timeout_ms=60_000)
        data = client.dataset("geo")
        assert data.get("key001") == b"value 1"

        def worker():
            failures = []

            def read():
                for number in range(100):
                    if data.get(b"key%03d" % (number % 50)) != b"value %d" % (number % 50):
                        failures.append(number)

            threads = [threading.Thread(target=read) for _ in range(4)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert failures == []

        for _ in range(2):
            in_child(worker)
        assert data.get("key002") == b"value 2"
        client.close()
        """
    with FakeNode(store(RECORDS)) as node:
        run(program, node.address)
        assert node.accepted <= 9


def test_a_client_that_is_never_closed():
    """Its connections end with it; threads that ask when the interpreter ends do no harm."""
    program = """
        import threading
        for _ in range(3):
            client = gossipkv.blocking.connect(address, timeout_ms=60_000)
            assert client.dataset("geo").get("key001") == b"value 1"
        asking = threading.Event()

        def ask():
            data = client.dataset("geo")
            while True:
                data.get("key001")
                asking.set()

        for _ in range(4):
            threading.Thread(target=ask, daemon=True).start()
        asking.wait()
        """
    with FakeNode(store(RECORDS)) as node:
        run(program, node.address)


def test_garbage_ends_its_connections():
    left = threading.Event()

    def serve(connection: Connection) -> None:
        store(RECORDS)(connection)
        left.set()

    with FakeNode(serve) as node:
        client = blocking.connect(node.address, timeout_ms=60_000)
        assert client.dataset("geo").get("key001") == b"value 1"
        del client
        assert left.wait(30)
