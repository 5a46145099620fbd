"""Behaviours of a fake node, for the tests of both clients."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import msgpack

if TYPE_CHECKING:
    from tests.unit.client.fake_node import Connection

RECORDS = {f"key{number:03}".encode(): f"value {number}".encode() for number in range(50)} | {
    b"": b"",
    b"\xff\x00": b"\x00",
}


def refused_address() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{sock.getsockname()[1]}"


def hang_up(connection: Connection) -> None:
    """Accept and close at once."""


def hang_up_on_request(connection: Connection) -> None:
    """Read one request and close."""
    connection.next_request()


def hang_up_amid_an_answer(connection: Connection) -> None:
    """Read one request, send half of its answer and close."""
    message_id, _, _ = connection.next_request()
    connection.raw(msgpack.packb([1, message_id, None, [b"value", "v1"]])[:7])


def silent(connection: Connection) -> None:
    """Answer nothing."""
    connection.ignore()


def one_answer(connection: Connection) -> None:
    message_id, _, _ = connection.next_request()
    connection.answer(message_id, [b"v", "v1"])


def twice(connection: Connection) -> None:
    while (request := connection.next_request()) is not None:
        connection.raw(msgpack.packb([1, request[0], None, [b"v", "v1"]]) * 2)


GARBAGE = [
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\xc1",
    msgpack.packb([1, 4_000_000, None, [b"v", "v1"]]),  # The wrong id.
    msgpack.packb([2, "hello", []]),  # A notification.
    msgpack.packb([0, 0, "get", []]),  # A request.
    b"\x94\x01\x00\xc0\xa9xxxx\xc1" + b"\x91" * 40,
]
