"""A supervisor gets notifications at a real socket."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
from typing import TYPE_CHECKING

import pytest

from gossipkv.log import fields_of
from gossipkv.processes.program import environment
from gossipkv.processes.supervisor import STATUS_PERIOD_S, ProcessSupervisor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["path", "abstract"])
def told(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Yield a supervisor's socket, which the environment names."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@gossipkv-test-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0"))
        listening.settimeout(0)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield listening


def heard(listening: socket.socket) -> list[str]:
    found = []
    try:
        while True:
            found.append(listening.recv(4096).decode())
    except BlockingIOError:
        return found


def test_messages(told: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is a datagram; a status is one line, and children inherit no such variable."""
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    supervisor = ProcessSupervisor.take()
    assert [name for name in environment() if name.startswith(("NOTIFY_", "WATCHDOG_"))] == []
    assert (supervisor.is_there, supervisor.watches, supervisor.period_s) == (True, True, 15.0)
    supervisor.doing("starts")
    supervisor.ready("serves\nREADY=0")
    supervisor.lives("serves")
    supervisor.lives("serves")
    supervisor.stopping("ends")
    assert heard(told) == [
        "STATUS=starts", "READY=1\nSTATUS=serves READY=0", "WATCHDOG=1\nSTATUS=serves", "WATCHDOG=1\nSTATUS=serves",
        "STOPPING=1\nSTATUS=ends",
    ]  # fmt: skip


@pytest.mark.parametrize("watchdog", [{}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}])
def test_without_a_watchdog(told: socket.socket, watchdog: dict[str, str]) -> None:
    """Without a watchdog, or with one for another process, a status is sent once."""
    environ = {"NOTIFY_SOCKET": os.environ["NOTIFY_SOCKET"], **watchdog}
    supervisor = ProcessSupervisor.take(environ)
    assert (environ, supervisor.watches, supervisor.period_s) == ({}, False, STATUS_PERIOD_S)
    supervisor.lives("serves")
    supervisor.lives("serves")
    assert heard(told) == ["STATUS=serves"]


@pytest.mark.parametrize("named", [{"NOTIFY_SOCKET": "notify"}, {"NOTIFY_SOCKET": "@"}, {"NOTIFY_SOCKET": "vsock:2:1"}])
def test_an_address_that_is_none(named: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """The bad address is logged, and the process goes on."""
    ProcessSupervisor.take(named).ready("serves")
    (line,) = caplog.records
    assert (line.msg, "neither an absolute path nor @NAME" in str(fields_of(line)["reason"])) == ("not_notified", True)


@pytest.mark.parametrize("time", ["0", "-1", "soon", "\u0663"])
def test_a_watchdog_without_a_time(time: str, caplog: pytest.LogCaptureFixture) -> None:
    """The bad time is logged, and other notifications are sent."""
    supervisor = ProcessSupervisor.take({"NOTIFY_SOCKET": "@nobody", "WATCHDOG_USEC": time})
    assert (supervisor.is_there, supervisor.watches) == (True, False)
    assert [fields_of(line)["reason"] for line in caplog.records] == [
        f"WATCHDOG_USEC={time} is not a number of microseconds"
    ]


def test_a_supervisor_that_takes_nothing(told: socket.socket, caplog: pytest.LogCaptureFixture) -> None:
    """The process never waits for a full or missing supervisor; the log has it once, and again after a recovery."""
    supervisor = ProcessSupervisor.take()
    while not caplog.records:
        supervisor.doing("serves")
    supervisor.doing("serves")
    assert heard(told)
    supervisor.doing("serves")
    told.close()
    supervisor.doing("serves")
    supervisor.doing("serves")
    assert [line.levelno for line in caplog.records] == [logging.WARNING] * 2


@pytest.mark.parametrize("watchdog", [{}, {"WATCHDOG_USEC": "1000000"}])
def test_what_a_full_queue_did_not_take_is_said_again(told: socket.socket, watchdog: dict[str, str]) -> None:
    """Without the repetition a ready process would be killed as unready."""
    supervisor = ProcessSupervisor.take({"NOTIFY_SOCKET": os.environ["NOTIFY_SOCKET"], **watchdog})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, contextlib.suppress(BlockingIOError):
        other.settimeout(0)
        while True:
            other.sendto(b"", told.getsockname())
    supervisor.ready("serves")
    heard(told)
    for _ in range(2):
        supervisor.lives("serves")
    lives = ["WATCHDOG=1\nSTATUS=serves"] if watchdog else []
    assert heard(told) == ["READY=1\n" + (lives[0] if lives else "STATUS=serves"), *lives]


def test_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process started by hand sends nothing."""
    supervisor = ProcessSupervisor.take({"WATCHDOG_USEC": "1000000"})
    assert (supervisor.is_there, supervisor.watches) == (False, False)
    monkeypatch.setattr(socket, "socket", None)
    supervisor.ready("serves")
