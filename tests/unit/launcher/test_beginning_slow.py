"""An interrupted launcher leaves nothing behind and does not touch other clusters."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from gossipkv.launcher import Cluster, control
from gossipkv.launcher import local_cluster as launcher
from gossipkv.launcher.order import ClusterOrder
from gossipkv.processes.program import order_line

# This fake supervisor reads no order and prints nothing; when the order arrives, it sends Ctrl-C.
INTERRUPTER = """
import os, select, signal, time
select.select([0], [], [])
os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)
"""


class Neighbour:
    """Another supervisor at the directory, which records its requests."""

    def __init__(self, directory) -> None:
        self.heard: list[object] = []
        self._listener = control.listen(directory)
        self._listener.settimeout(60)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self._directory = directory

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                request = control.receive(connection)
            if request == {"do": "end"}:
                return
            if request is not None:
                self.heard.append(request)

    def close(self) -> None:
        with control.connect(self._directory) as connection:
            control.send(connection, {"do": "end"})
        self._thread.join()
        self._listener.close()


@pytest.fixture
def neighbour(tmp_path):
    """Yield a supervisor that is up already in this directory."""
    neighbour = Neighbour(tmp_path)
    yield neighbour
    neighbour.close()


@pytest.fixture
def begun(monkeypatch):
    """Yield the started supervisors, each of which only interrupts its launcher."""
    begun = []
    popen = subprocess.Popen

    def start(_command, **options):
        begun.append(popen([sys.executable, "-c", INTERRUPTER], **options))
        return begun[-1]

    monkeypatch.setattr(launcher.subprocess, "Popen", start)
    yield begun
    for process in begun:
        process.kill()
        process.wait()


@pytest.mark.parametrize("detach", [False, True])
def test_an_interrupt_before_the_answer(tmp_path, neighbour, begun, detach):
    """The own supervisor ends, detached or not, and the one that is up gets no request."""
    descriptors = set(os.listdir("/proc/self/fd"))
    cluster = Cluster(tmp_path, nodes=1)
    with pytest.raises(KeyboardInterrupt):
        cluster.up(detach=detach)
    assert [process.returncode for process in begun] == [-9]
    assert neighbour.heard == []
    give_up_s = time.monotonic() + 60
    while (left := set(os.listdir("/proc/self/fd")) - descriptors) and time.monotonic() < give_up_s:
        time.sleep(0.01)  # The neighbour's thread may be closing a connection.
    assert not left


def test_a_cluster_that_another_began_anew(tmp_path, neighbour):
    """The former launcher does not end it."""
    cluster = Cluster(tmp_path)
    with subprocess.Popen(["true"]) as own:
        cluster._supervisor = own
        assert not cluster.down()
    assert neighbour.heard == []


def test_an_interrupt_before_the_end_is_asked_for(tmp_path, monkeypatch):
    """After a second Ctrl-C while a detached cluster starts, the supervisor is killed without waiting."""

    def interrupt(_directory):
        raise KeyboardInterrupt

    cluster = Cluster(tmp_path)
    monkeypatch.setattr(control, "connect", interrupt)
    with subprocess.Popen(["sleep", "60"]) as own:
        cluster._supervisor = own
        with pytest.raises(KeyboardInterrupt):
            cluster.down()
    assert own.returncode == -9


def supervise(directory, order: bytes) -> int:
    """Return the exit status of a supervisor whose launcher is gone before it answers."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "gossipkv.launcher.supervisor", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        try:
            _, said = process.communicate(order, timeout=60)
        finally:
            process.kill()
    assert said == b""
    return process.returncode


def test_a_launcher_that_is_gone_before_the_answer(tmp_path):
    """A detached cluster does not start then, since no user knows of it."""
    assert supervise(tmp_path, order_line(ClusterOrder(nodes=1))) == 1
    assert not (tmp_path / "n1").exists()
    assert not (tmp_path / control.SOCKET).exists()
    assert supervise(tmp_path / "never", b"") == 1
