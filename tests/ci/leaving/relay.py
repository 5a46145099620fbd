"""A relay before a node's port, TCP and UDP, that can stop forwarding without an end of any connection."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import Self

BYTES = 1 << 16
POLL_S = 0.1


class Relay:
    """Forwards to `target` what comes to `address`, and back, while it is not `cut`."""

    def __init__(self, host: str, port: int) -> None:
        self.target = host, port
        self.cut = False
        self._is_over = False
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server((host, 0))
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._datagrams.bind(self._listener.getsockname())
        self._senders: dict[tuple[str, int], socket.socket] = {}
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._datagrams, selectors.EVENT_READ, self._out)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        for key in [*self._selector.get_map().values()]:
            key.fileobj.close()

    def _run(self) -> None:
        while not self._is_over:
            if self.cut:  # Bytes wait in the system's buffers, as on a cable that nobody has noticed to be cut.
                threading.Event().wait(POLL_S)
                continue
            for key, _ in self._selector.select(POLL_S):
                key.data()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            node = socket.create_connection(self.target)
        except OSError:
            client.close()
            return
        for source, sink in ((client, node), (node, client)):
            self._selector.register(
                source, selectors.EVENT_READ, lambda source=source, sink=sink: self._pass(source, sink)
            )

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        if source.fileno() < 0:
            return
        try:
            data = source.recv(BYTES)
            if data:
                sink.sendall(data)
                return
        except OSError:
            pass
        for end in (source, sink):
            if end.fileno() >= 0:
                self._selector.unregister(end)
                end.close()

    def _out(self) -> None:
        data, sender = self._datagrams.recvfrom(BYTES)
        if sender not in self._senders:
            outer = self._senders[sender] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            outer.bind((self.target[0], 0))
            self._selector.register(outer, selectors.EVENT_READ, lambda: self._back(outer, sender))
        self._senders[sender].sendto(data, self.target)

    def _back(self, outer: socket.socket, sender: tuple[str, int]) -> None:
        with contextlib.suppress(OSError):  # The node is down.
            self._datagrams.sendto(outer.recv(BYTES), sender)
