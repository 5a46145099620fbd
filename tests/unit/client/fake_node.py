"""A scripted node in a thread; it knows MessagePack and nothing of gossipkv."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Self

import msgpack

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

Request = tuple[int, str, list[object]]


class Connection:
    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.unpacker = msgpack.Unpacker(raw=False, max_buffer_size=1 << 30)
        self.pending: list[Request] = []

    def next_request(self, *, has_members: bool = False) -> Request | None:
        """Return the next request, or None when the client has gone.

        A client asks for the members when it has time to, and cancels what it does not await, so that is answered here;
        not for the members if the behaviour `has_members`.
        """
        while True:
            for message in self.unpacker:
                kind, message_id, method, params = message
                assert kind == 0
                if method != "cancel" and (method != "members" or has_members):
                    return message_id, method, params
                self.answer(message_id, [] if method == "members" else None)
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self.unpacker.feed(data)

    def ignore(self) -> None:
        """Read what the client sends until it goes."""
        while self.socket.recv(1 << 16):
            pass

    def answer(self, message_id: int, result: object, error: object = None) -> None:
        self.raw(msgpack.packb([1, message_id, error, result]))

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)


class FakeNode:
    """A listener that runs `behaviour(connection)` for each connection in a thread; `tls`: under TLS."""

    def __init__(
        self,
        behaviour: Callable[[Connection], None],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.tls = tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((host, port))
        self.listener.listen(16)
        self.port = self.listener.getsockname()[1]
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self.behaviour = behaviour
        self._accepted = 0
        self._accepting = threading.Lock()
        self.failures: list[BaseException] = []
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.sockets: list[socket.socket] = []
        self.threads[0].start()

    @property
    def accepted(self) -> int:
        """Return the number of connections, including those that wait to be accepted."""
        while True:
            with self._accepting:
                if not self.threads[0].is_alive() or not self._has_come(0):
                    return self._accepted
            time.sleep(0.001)

    def _has_come(self, within_s: float | None) -> bool:
        return bool(select.select([self.listener], [], [], within_s)[0])

    def _accept(self) -> None:
        while self._has_come(None):
            with self._accepting:
                try:
                    sock, _ = self.listener.accept()
                except OSError:
                    return
                self._accepted += 1
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self.tls is not None:
                sock = self._shaken(self.tls, sock)
            with sock:
                self.behaviour(Connection(sock))
        except OSError:
            pass  # The client left first, or the test closed the socket.
        except BaseException as error:  # noqa: BLE001  # Told to the test in `close`.
            self.failures.append(error)

    def _shaken(self, tls: ssl.SSLContext, sock: socket.socket) -> socket.socket:
        secured = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self.sockets.append(secured)
        try:
            secured.do_handshake()
        except OSError:
            with secured:  # Closing with unread input would reset the connection before the client reads the reason.
                while socket.socket.recv(secured, 1 << 16):
                    pass
            raise
        return secured

    def close(self) -> None:
        """Stop, and raise errors of the threads."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.threads[0].join(10)  # Then all accepted sockets are known.
        self.listener.close()
        for sock in self.sockets:
            with contextlib.suppress(OSError):
                # `SSLSocket.shutdown` would make its reader take records for plain bytes.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(10)
        for failure in self.failures:
            raise failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


SAID = {"auth": "pong", "ping": "pong"}  # Answers of `store` that do not depend on parameters.


def store(records: dict[bytes, bytes], version: str = "v1", page: int = 3) -> Callable[[Connection], None]:
    """Return a behaviour that serves `records` as every database."""
    ordered = sorted(records.items())

    def serve(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            message_id, method, params = request
            connection.answer(message_id, result_of(method, params))

    def result_of(method: str, params: list[object]) -> object:
        match method, params:
            case name, _ if name in SAID:
                return SAID[name]
            case "get", [_, key, *_]:
                return [records.get(key), version]
            case "get_many", [_, keys, *_]:
                return [[records.get(key) for key in keys], version]
            case "scan", [_, *rest]:
                return scan(rest[0] if rest else {})
        raise AssertionError((method, params))

    def scan(options: dict[str, object]) -> object:
        found = [
            [key, value]
            for key, value in ordered
            if options.get("start", b"") <= key
            and ("end" not in options or key < options["end"])
            and key.startswith(options.get("prefix", b""))
        ]
        if options.get("reverse"):
            found.reverse()
        begin = int(options.get("cursor", b"0"))
        assert begin == 0 or options["version"] == version
        end = begin + min(page, options.get("limit", page))
        return [found[begin:end], str(end).encode() if end < len(found) else None, version]

    return serve


def answering(*results):
    """Return a behaviour that answers each method from a table; an exception there is an error for the client."""
    table = dict(results)

    def serve(connection: Connection) -> None:
        while (request := connection.next_request(has_members="members" in table)) is not None:
            message_id, method, params = request
            found = table[method](*params) if callable(table[method]) else table[method]
            found = found.pop(0) if isinstance(found, list) and len(found) > 1 else found
            found = found[0] if isinstance(found, list) else found
            if isinstance(found, tuple):
                connection.answer(message_id, None, list(found))
            else:
                connection.answer(message_id, found)

    return serve
