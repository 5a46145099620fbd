"""RESP over real sockets beside MessagePack-RPC, stepped by hand."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.unit.serving.test_resp import array
from tests.unit.serving.test_serving_slow import PING, PONG, RECORDS, Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


def get(key: bytes) -> tuple[bytes, bytes]:
    return array(b"GET", b"db:" + key), b"$%d\r\n%s\r\n" % (len(RECORDS[key]), RECORDS[key])


def test_each_listener_has_its_dialect(served: Served) -> None:
    """Both protocols work at once, and their connections are counted together."""
    one, other = served.connect(), served.connect(to=served.resp)
    one.sendall(PING)
    other.sendall(b"PING\r\n")
    assert served.receive(one, len(PONG)) == PONG
    assert served.receive(other, 7) == b"+PONG\r\n"
    assert served.counters("connections_accepted") == served.counters("connections") == 2


def test_a_client_that_reads_slowly(served: Served) -> None:
    """Large values, more than the sockets hold, wait behind a late answer from Python."""
    client = served.connect(to=served.resp, receive_buffer=4096)
    asked = [get(key) for key in [b"big", b"key001", b"key002"] * 7]
    client.sendall(array(b"GET", b"carts:a") + b"".join(command for command, _ in asked))
    served.until(lambda: served.counters("held_bytes") > 1 << 20)
    for _ in range(10):
        served.step()
    assert served.counters("held_bytes") < 2 << 20  # The connection is not read further.
    served.reply(served.hand_offs[0], [b"late", b"token"])
    answers = b"$4\r\nlate\r\n" + b"".join(answer for _, answer in asked)
    assert served.receive(client, len(answers)) == answers
    assert served.counters("held_bytes") == served.counters("in_flight") == 0


def test_a_drain_answers_what_was_asked(served: Served) -> None:
    """Answers that Python gives later come in order; then the connection ends, and no new one is accepted."""
    client = served.connect(to=served.resp)
    command, answer = get(b"key007")
    client.sendall(array(b"INFO") + command)
    served.until(lambda: len(served.hand_offs) == 1)
    served.loop.drain()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(served.resp)
    served.reply(served.hand_offs[0], b"+told\r\n")
    assert served.ends(client) == b"+told\r\n" + answer


def test_who_quits_is_told(served: Served) -> None:
    """The client gets OK, and then the end."""
    client = served.connect(to=served.resp)
    client.sendall(b"QUIT\r\n")
    assert served.ends(client) == b"+OK\r\n"
    assert served.counters("connections") == 0
