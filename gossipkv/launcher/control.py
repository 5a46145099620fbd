"""Requests to a supervisor: one JSON object each way over a Unix socket in the cluster's directory.

    request   {"do": "status"} | {"do": "start", "node": 2} | {"do": "kill", "node": 2, "signal": 9}
              {"do": "add", "settings": {...}} | {"do": "down", "grace_s": 20}
    reply     {"nodes": [...], ...} as for `status`, or {"error": "..."}; to `down` none but the supervisor's end

A supervisor answers at once and waits for nothing; to see a node ready, ask again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import struct
from typing import TYPE_CHECKING, Final

from gossipkv.errors import LocalError
from gossipkv.launcher.status import NodeStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.errors import Detail

SOCKET: Final = "control"
ANSWER_TIMEOUT_S: Final = 60.0  # It answers in milliseconds, but a busy machine once took over ten seconds.

Message = dict[str, object]


class NotUp(LocalError):
    """The cluster of this directory is not up: no supervisor runs for it."""


def command(word: str, directory: Path) -> str:
    """Return the command line that does `word` to the cluster of this directory."""
    return f"`gossipkv cluster {word} --data {shlex.quote(os.fspath(directory))}`"


@contextlib.contextmanager
def _name(directory: Path) -> Iterator[str]:
    """Yield the socket's path in a form that always fits a socket's address (107 bytes)."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def listen(directory: Path) -> socket.socket:
    """Return the supervisor's listening socket, replacing an old one.

    Requires: the directory's lock is held; the umask is 077, since anybody who can write to the socket can give orders.
    """
    (directory / SOCKET).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with _name(directory) as name:
        listener.bind(name)
    listener.listen()
    listener.settimeout(0)
    return listener


def connect(directory: Path) -> socket.socket:
    """Connect to the supervisor.

    Raises:
        NotUp: there is no supervisor.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(ANSWER_TIMEOUT_S)
        with _name(directory) as name:
            connection.connect(name)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        words = f"the cluster in {directory} is not up; {command('up', directory)} starts it"
        raise NotUp(words, {"directory": os.fspath(directory)}) from None
    except OSError:
        connection.close()
        raise
    return connection


def peer(connection: socket.socket) -> int:
    """Return the process at the other end: it listens, so its id cannot be reused."""
    size = struct.calcsize("3i")
    process, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    assert isinstance(process, int)
    return process


def send(connection: socket.socket, message: Message) -> None:
    """Send one message."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def receive(connection: socket.socket) -> Message | None:
    """Receive one message; None: the other end closed without it.

    Raises:
        ValueError: the message is invalid.
    """
    received = b""
    while not received.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part:
            return None
        received += part
    return understand(received)


def understand(received: bytes) -> Message:
    """Decode a message.

    Raises:
        ValueError: the message is invalid.
    """
    with contextlib.suppress(RecursionError):  # Deeply nested lists.
        message = json.loads(received)
        if isinstance(message, dict):
            return message
    raise ValueError("the message is not a JSON object")


def ask(directory: Path, request: Message) -> list[NodeStatus]:
    """Send a request, and return the nodes in the supervisor's answer.

    Raises:
        NotUp: no supervisor runs, or it ended meanwhile.
        LocalError: it refused, does not answer, or its answer is of another version.
    """
    details: dict[str, Detail] = {"directory": os.fspath(directory)}
    with connect(directory) as connection:
        answerer = f"the supervisor of {directory} (process {peer(connection)})"
        try:
            send(connection, request)
            reply = receive(connection)
            nodes = [] if reply is None or "error" in reply else _nodes(reply)
        except TimeoutError:
            raise LocalError(f"{answerer} did not answer within {ANSWER_TIMEOUT_S:.0f} s", details) from None
        except ConnectionError:
            reply = None
        except (ValueError, TypeError, KeyError):
            words = (
                f"gave an answer of unknown form, so it is of another version; end it with {command('down', directory)}"
            )
            raise LocalError(f"{answerer} {words}", details) from None
    if reply is None:
        raise NotUp(f"the cluster in {directory} ended before it answered", details)
    if "error" in reply:
        raise LocalError(str(reply["error"]))
    return nodes


def _nodes(reply: Message) -> list[NodeStatus]:
    nodes = reply["nodes"]
    if not isinstance(nodes, list):
        raise TypeError(f"expected a list, not {nodes!r}")
    return [NodeStatus(**node) for node in nodes]
