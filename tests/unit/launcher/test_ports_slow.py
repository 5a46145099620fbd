"""Ports are free for both protocols, and only the node passes their reservation."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path

import pytest

from gossipkv.errors import LocalError
from gossipkv.launcher.ports import DEFAULT_BASE_PORT, PORTS, choose, reserve

TIME_WAIT = "06"
# An address of this process alone: on a shared one another cluster could take the free port.
HOST = f"127.4.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"


def listener(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((HOST, port))
    made.listen()
    return made


def test_a_node_listens_on_its_reservation():
    """The node can listen repeatedly; other sockets are refused whether the node is there or not."""
    with contextlib.ExitStack() as stack:
        ((port, reservation),) = choose(HOST, 1, base_port=None, taken=set()).items()
        stack.enter_context(reservation)
        for _ in range(2):
            with listener(port):
                assert reserve(HOST, port) is None
            assert reserve(HOST, port) is None
            with socket.socket() as plain, pytest.raises(OSError, match="in use"):
                plain.bind((HOST, port))


def test_connections_of_the_past_do_not_count():
    """A port with recently closed connections is free; a reservation counts as taken."""
    ((port, reservation),) = choose(HOST, 1, base_port=None, taken=set()).items()
    with reservation, listener(port) as server, socket.create_connection((HOST, port)) as client:
        accepted, _ = server.accept()
        accepted.close()  # The side that closes first waits.
        assert client.recv(1) == b""
    assert TIME_WAIT in states_of(port)
    ((_, again),) = choose(HOST, 1, base_port=None, usual=port, taken=set()).items()
    with again:
        assert TIME_WAIT in states_of(port)
        assert [*choose_and_close(1, usual=port)] != [port]
        with listener(port):
            pass
    assert choose_and_close(1, usual=port) == [port]


def states_of(port: int) -> set[str]:
    """Return the states of the sockets at this port, as the kernel writes them."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[3] for row in rows if row[1].endswith(f":{port:04X}")}


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_in_use(kind):
    """A port used by TCP or UDP is refused or skipped, and no reservation stays behind."""
    chosen = choose(HOST, 2, base_port=None, taken=set())
    first, second = chosen
    for reservation in chosen.values():
        reservation.close()
    assert first not in choose_and_close(2, taken={first})
    with socket.socket(type=kind) as other:
        other.bind((HOST, second))
        if kind == socket.SOCK_STREAM:
            other.listen()
        assert reserve(HOST, second) is None
        assert second not in choose_and_close(2)
        with pytest.raises(LocalError, match=f"{second} is in use"):
            choose(HOST, 1, base_port=second, taken=set())
    assert first in choose_and_close(2)


def choose_and_close(count: int, taken: set[int] = frozenset(), usual: int = DEFAULT_BASE_PORT) -> list[int]:
    chosen = choose(HOST, count, base_port=None, taken=taken, usual=usual)
    for reservation in chosen.values():
        reservation.close()
    return list(chosen)


def test_there_are_only_so_many():
    """A high base port may leave too few numbers."""
    with pytest.raises(
        LocalError, match="3 ports from 65534 on would exceed the last port, 65535; choose another --base-port"
    ):
        choose(HOST, 3, base_port=65_534, taken=set())
    with pytest.raises(LocalError, match="has only 0 free ports, and 1 are needed"):
        choose(HOST, 1, base_port=None, taken={*PORTS})


def test_why_a_port_cannot_be_had(monkeypatch):
    """The error has the system's reason and the flag, since not every refusal is a port in use."""
    with pytest.raises(
        LocalError, match=r"cannot listen on 192\.0\.2\.1:7070: Cannot assign requested address; .* --base-port"
    ):
        choose("192.0.2.1", 1, base_port=7070, taken=set())

    def refuse(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(LocalError, match=f"{HOST}:81: Permission denied; choose another --port"):
        choose(HOST, 1, base_port=81, taken=set(), flag="--port")
