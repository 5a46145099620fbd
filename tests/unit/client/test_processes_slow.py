"""Threads and forks: which uses of a client are allowed, and that others are not harmed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from gossipkv.client import blocking
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
        assert node.accepted == 2


def test_a_fork_while_another_thread_is_amid_a_request():
    """A child that is forked during another thread's request can read: the lock is not inherited."""
    program = """
        import threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # The fork with threads is the point.
        client = gossipkv.blocking.connect(address, timeout_ms=60_000)
        data = client.dataset("geo")
        other = threading.Thread(target=data.get, args=(b"slow",))
        other.start()
        while not client._dialler._lock.locked():
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


def test_two_threads_at_once_are_refused():
    """The second thread gets an error and the first its answer; using the client in turn is allowed."""
    asked, go = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            asked.set()
            assert go.wait(60)
            connection.answer(request[0], [request[2][1], "v1"])

    found = []
    with FakeNode(slow) as node, blocking.connect(node.address, timeout_ms=60_000) as client:
        data = client.dataset("geo")
        other = threading.Thread(target=lambda: found.append(data.get("theirs")))
        other.start()
        assert asked.wait(60)
        with pytest.raises(RuntimeError, match="one thread at a time"):
            data.get("mine")
        with pytest.raises(RuntimeError, match="one thread at a time"):
            next(data.iter_get(["mine"]))
        go.set()
        other.join()
        assert found == [b"theirs"]
        assert data.get("mine") == b"mine"
        assert node.accepted == 1


def test_many_threads_in_turn_and_at_once():
    """Each thread gets its own values or an error."""
    refused = []

    def read(number: int) -> None:
        key = f"key{number:03}"
        for _ in range(200):
            try:
                assert data.get(key) == RECORDS[key.encode()]
            except RuntimeError:
                refused.append(number)

    failures = []
    with FakeNode(store(RECORDS)) as node, blocking.connect(node.address, timeout_ms=60_000) as client:
        data = client.dataset("geo")
        threads = [threading.Thread(target=lambda n=n: failures.extend(attempt(read, n))) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert node.accepted == 1
        assert data.get("key001") == b"value 1"


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
        pytest.raises(TypeError, match="connect where it is used"),
    ):
        client.__reduce__()
