"""Relays before the ports of nodes, by which alone the nodes reach each other; and cuts, as of a cable.

While a node is cut off, no datagram passes to it or from it, and bytes of connections wait: no connection ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    Name = tuple[str, int]

BYTES = 1 << 16


class Network:
    """Forwards what comes to the address of a node's relay, and back; `processes` returns the nodes' process ids."""

    def __init__(self, processes: Callable[[], dict[int, int]]) -> None:
        self._processes = processes
        self._nodes: dict[Name, int] = {}
        self._cut: set[int] = set()
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_over = True
            self._cut.clear()
            self._changed.notify_all()
        for end in [*self._open]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self, node: int) -> None:
        with self._changed:
            self._cut.add(node)

    def heal(self, node: int) -> None:
        with self._changed:
            self._cut.discard(node)
            self._changed.notify_all()

    def relay(self, node: int, host: str, port: int) -> str:
        """Begin a relay before a node; return its address."""
        self._nodes[host, port] = node
        listener = self._kept(socket.create_server((host, 0)))
        datagrams = self._kept(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(listener.getsockname())
        self._start(self._accept, listener, node, (host, port))
        self._start(self._take, datagrams, node, (host, port))
        return "{}:{}".format(*listener.getsockname())

    def _kept(self, end: socket.socket) -> socket.socket:
        self._open.add(end)
        if self._is_over:
            self._close(end)
            raise ConnectionAbortedError
        return end

    def _start(self, do: Callable[..., None], *arguments: object) -> None:
        def run() -> None:
            with contextlib.suppress(OSError):  # The socket was closed.
                do(*arguments)

        threading.Thread(target=run, daemon=True).start()

    def _passes(self, *nodes: int | None) -> bool:
        return self._cut.isdisjoint(nodes)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket, node: int, target: Name) -> None:
        while True:
            client, name = listener.accept()
            self._start(self._connect, self._kept(client), self._sender(name), node, target)

    def _connect(self, client: socket.socket, sender: int | None, node: int, target: Name) -> None:
        self._wait(sender, node)
        try:
            server = self._kept(socket.create_connection(target))
        except OSError:
            self._close(client)
            return
        self._start(self._forward, server, client, sender, node)
        self._forward(client, server, sender, node)

    def _forward(self, source: socket.socket, sink: socket.socket, sender: int | None, node: int) -> None:
        try:
            while data := source.recv(BYTES):
                self._wait(sender, node)
                sink.sendall(data)
        finally:
            self._wait(sender, node)
            self._close(source, sink)

    def _wait(self, *nodes: int | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._passes(*nodes))

    def _close(self, *ends: socket.socket) -> None:
        for end in ends:
            self._open.discard(end)
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # Wakes the other thread.
            end.close()

    def _sender(self, name: Name) -> int | None:
        """Return the node whose process has the socket of that name; None: another process has it."""
        port = f":{name[1]:04X}"
        with open("/proc/net/tcp") as table:
            rows = [row.split() for row in table]
        inode = next((row[9] for row in rows if row[1].endswith(port)), None)
        for node, process in self._processes().items():
            with contextlib.suppress(OSError), os.scandir(f"/proc/{process}/fd") as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):  # It was closed meanwhile.
                        if os.readlink(entry.path) == f"socket:[{inode}]":
                            return node
        return None

    # -- datagrams -----------------------------------------------------------------------------------------------------

    def _take(self, datagrams: socket.socket, node: int, target: Name) -> None:
        outer: dict[Name, socket.socket] = {}
        while True:
            data, name = datagrams.recvfrom(BYTES)
            sender = self._nodes.get(name)
            if name not in outer:
                end = outer[name] = self._kept(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                end.bind((target[0], 0))
                self._start(self._give_back, end, datagrams, name, sender, node)
            if self._passes(sender, node):
                with contextlib.suppress(OSError):  # The node is down.
                    outer[name].sendto(data, target)

    def _give_back(
        self, end: socket.socket, datagrams: socket.socket, name: Name, sender: int | None, node: int
    ) -> None:
        while not self._is_over:
            with contextlib.suppress(ConnectionError):  # The node is down.
                data = end.recv(BYTES)
                if self._passes(sender, node):
                    datagrams.sendto(data, name)
