"""A real node's messages to its supervisor: nothing too early, and nothing while the node hangs."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, connect
from tests.ci.cluster.test_http import gateways

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WATCHDOG = {"WATCHDOG_USEC": "200000"}
SILENCE_S = 2.0  # A node owes a message each 0.1 s; after this time its silence is believed.

# The node does not listen before the test opens the gate.
HELD = """
import os, trio
from gossipkv.node import wiring
bound = wiring.advertised
async def held(*args, **options):
    await trio.to_thread.run_sync(lambda: open(os.environ["GATE"]).read())
    return await bound(*args, **options)
wiring.advertised = held
"""

# Once the file exists, either the serving task waits for ever while Trio goes on, or the thread stops.
SERVING_HANGS = """
import os, trio
from gossipkv.environment.trio_world import RealSockets
wait = RealSockets.wait_readable
async def hang(self, source):
    await wait(self, source)
    if os.path.exists(os.environ["GATE"]) and type(source).__name__ == "Loop":
        await trio.sleep_forever()
RealSockets.wait_readable = hang
"""
THREAD_HANGS = """
import os, threading
from gossipkv.serving.pump import Pump
tell = Pump._tell
def hang(self):
    while os.path.exists(os.environ["GATE"]):
        threading.Event().wait(1)
    tell(self)
Pump._tell = hang
"""


@contextmanager
def listening(place: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(place / "notify"))
        told.settimeout(PATIENCE_S)
        yield told


def environ(place: Path, **more: str) -> dict[str, str]:
    """Return the supervisor's variables, and the path of the gate by which a test holds the node."""
    return {"NOTIFY_SOCKET": str(place / "notify"), "GATE": str(place / "gate"), **more}


def until(told: socket.socket, state: str) -> list[str]:
    """Read all messages up to the first that holds `state`; raise if none comes."""
    messages = []
    while not messages or state not in messages[-1]:
        messages.append(told.recv(4096).decode())
    return messages


def falls_silent(told: socket.socket) -> bool:
    """True if no message comes once all sent messages have been read."""
    told.settimeout(SILENCE_S)
    try:
        for _ in range(1000):
            told.recv(4096)
    except TimeoutError:
        return True
    finally:
        told.settimeout(PATIENCE_S)
    return False


def test_ready_and_stopping(tmp_path: Path) -> None:
    """READY=1 comes with the line `ready`, STOPPING=1 at SIGTERM, and the status describes each phase."""
    os.mkfifo(tmp_path / "gate")
    source = tmp_path / "source" / "geo" / "1"
    source.mkdir(parents=True)
    (source / "part-0").write_bytes(b"paris\tFrance\n")
    with (
        listening(tmp_path) as told,
        NodeProcess(tmp_path, source=tmp_path / "source", changed=HELD, environ=environ(tmp_path)) as node,
    ):
        with open(tmp_path / "gate", "w"):  # This returns when the node has opened the gate.
            assert told.recv(4096) == b"STATUS=starts: opens what is built, and looks at its source"
            told.settimeout(0)
            with pytest.raises(BlockingIOError):
                told.recv(4096)
            told.settimeout(PATIENCE_S)
        node.ready()
        (ready,) = until(told, "READY=1")
        assert ready.startswith("READY=1\nSTATUS=serves ")
        assert ready.endswith("; hears 0 of 0 other members")
        node.process.send_signal(signal.SIGTERM)
        *_, stopping = until(told, "STOPPING=1")
        assert stopping.startswith("STOPPING=1\nSTATUS=stops: it still answers, while other nodes copy")
        until(told, "STATUS=stops: it has left the cluster")
        assert node.process.wait(PATIENCE_S) == 0


def test_the_status_follows(tmp_path: Path) -> None:
    """The status shows the served datasets."""
    source = tmp_path / "source" / "geo" / "1"
    source.mkdir(parents=True)
    (source / "part-0").write_bytes(b"paris\tFrance\n")
    options = {"source": tmp_path / "source", "environ": environ(tmp_path, **WATCHDOG)}
    with listening(tmp_path) as told, NodeProcess(tmp_path, **options) as node:
        node.ready()
        until(told, "WATCHDOG=1\nSTATUS=serves 1 of 1 datasets; hears 0 of 0 other members")


def test_children_know_nothing_of_it(tmp_path: Path) -> None:
    """The gateway lacks the supervisor's variables, so it cannot speak for the node."""
    options = ("--http-listen", "127.0.0.1:0")
    with listening(tmp_path) as told, NodeProcess(tmp_path, *options, environ=environ(tmp_path, **WATCHDOG)) as node:
        node.ready()
        until(told, "WATCHDOG=1")
        ((_, process),) = gateways(node)
        with open(f"/proc/{process}/environ") as file:
            names = [entry.partition("=")[0] for entry in file.read().split("\0")]
        assert "GATE" in names
        assert [name for name in names if name.startswith(("NOTIFY_", "WATCHDOG_"))] == []


@pytest.mark.parametrize("changed", [SERVING_HANGS, THREAD_HANGS], ids=["serving", "thread"])
def test_one_that_hangs_says_nothing(tmp_path: Path, changed: str) -> None:
    """A node sends WATCHDOG=1 only while its serving task makes progress."""
    with (
        listening(tmp_path) as told,
        NodeProcess(tmp_path, changed=changed, environ=environ(tmp_path, **WATCHDOG)) as node,
    ):
        node.ready()
        with connect(node.address) as client:
            assert client.ping() is None
        until(told, "WATCHDOG=1")
        until(told, "WATCHDOG=1")
        (tmp_path / "gate").touch()
        assert falls_silent(told)


def test_one_that_is_stopped_says_nothing(tmp_path: Path) -> None:
    """A process under SIGSTOP is silent until SIGCONT."""
    with listening(tmp_path) as told, NodeProcess(tmp_path, environ=environ(tmp_path, **WATCHDOG)) as node:
        node.ready()
        until(told, "WATCHDOG=1")
        node.process.send_signal(signal.SIGSTOP)
        assert falls_silent(told)
        node.process.send_signal(signal.SIGCONT)
        until(told, "WATCHDOG=1")
