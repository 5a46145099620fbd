"""A load through its Python interface, against servers in threads that behave in every way."""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from gossipkv.address import parse_address
from gossipkv.errors import Unavailable
from tests.load import Load, RpcDialect, Traffic, run
from tests.unit.client.fake_node import FakeNode, store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.client.fake_node import Connection

HELD = {b"key-%d" % number: b"value of %d" % number for number in range(100)}
RECORDS = [*HELD.items(), (b"absent", None)]


@pytest.mark.parametrize(("batch", "keys"), [(1, 500), (7, 3500)])
def test_right_answers(batch: int, keys: int) -> None:
    """All values and absences are right, so the outcome is clean."""
    with FakeNode(store(HELD)) as node:
        load = Load(connections=4, in_flight=5, batch=batch, duration_s=None, requests=500)
        outcome = run(node.address, "db", RECORDS, load)
    assert outcome.is_clean
    assert (outcome.requests, outcome.keys, outcome.latency.count, outcome.first_wrong) == (500, keys, 500, None)
    assert outcome.rate == pytest.approx(500 / outcome.duration_s)
    assert node.accepted == 4


def test_wrong_answers_are_counted_and_told() -> None:
    """The wrong values are exactly as many as the server gave."""
    asked = []

    def serve(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            message_id, _, (_, key) = request
            asked.append(key)
            connection.answer(message_id, [b"right", "1"])

    with FakeNode(serve) as node:
        records = [(b"a", b"right"), (b"b", b"other")]
        outcome = run(node.address, "db", records, Load(duration_s=None, requests=100))
    assert outcome.requests == 100
    assert outcome.wrong_values == asked.count(b"b") > 0
    assert outcome.first_wrong == "b'b': expected b'other' of 5 bytes, got b'right' of 5 bytes"
    assert not outcome.is_clean


def dying(end: Callable[[Connection, int], None], after: int) -> Callable[[Connection], None]:
    """Return a behaviour that answers `after` requests of a connection, and then calls `end`."""

    def serve(connection: Connection) -> None:
        answered = 0
        while (request := connection.next_request()) is not None:
            message_id, _, (_, key) = request
            if answered == after:
                end(connection, message_id)
                return
            connection.answer(message_id, [HELD[key], "1"])
            answered += 1

    return serve


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda connection, _: connection.socket.shutdown(socket.SHUT_WR), "closed"),
        (lambda connection, _: connection.raw(b"\x94\x01"), "closed"),
        (lambda connection, _: connection.raw(b"HTTP/1.1 400 Bad Request\r\n"), "garbage"),
        (lambda connection, message_id: connection.answer(message_id + 1, None), "unasked"),
        (lambda connection, _: connection.socket.recv(1), "timeout"),
    ],
)
def test_a_failing_server_is_reported(end: Callable[[Connection, int], None], reason: str) -> None:
    """Each connection is reported with its reason, and none hangs."""
    with FakeNode(dying(end, after=10)) as node:
        load = Load(connections=3, duration_s=60, timeout_s=1.5 if reason == "timeout" else 60)
        outcome = run(node.address, "db", list(HELD.items()), load)
    assert outcome.broken == {reason: 3}
    assert (outcome.requests, outcome.lost, outcome.wrong_values) == (30, 3, 0)


def test_errors_are_counted_by_code() -> None:
    """Errors are counted without any answered request, and the connections stay."""

    def refuse(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            connection.answer(request[0], None, ["UNKNOWN_DATABASE", "no such database", {}])

    with FakeNode(refuse) as node:
        outcome = run(node.address, "db", RECORDS, Load(connections=2, duration_s=None, requests=50))
    assert (outcome.requests, outcome.errors, outcome.broken) == (0, {"UNKNOWN_DATABASE": 50}, {})


def test_a_warm_up_does_not_count_but_its_faults_do() -> None:
    """Only the run's own requests count, but a connection lost before is reported."""
    with FakeNode(dying(lambda connection, _: None, after=5)) as node:
        load = Load(duration_s=None, requests=10, warm_up_s=60)
        outcome = run(node.address, "db", list(HELD.items()), load)
    assert (outcome.requests, outcome.lost, outcome.broken) == (0, 1, {"closed": 1})


def test_an_open_loop_runs() -> None:
    """The number of requests is rate times duration."""
    with FakeNode(store(HELD)) as node:
        outcome = run(node.address, "db", RECORDS, Load(connections=2, rate=200, duration_s=0.25))
    assert outcome.is_clean
    assert outcome.requests == 50


def test_one_run_after_another() -> None:
    """Connections are kept between runs."""
    with FakeNode(store(HELD)) as node:
        load = Load(connections=3)
        with Traffic(parse_address(node.address), RpcDialect("db", RECORDS), load) as traffic:
            assert [traffic.run(requests=count).requests for count in (10, 20)] == [10, 20]
    assert node.accepted == 3


@pytest.mark.parametrize("reset", [False, True])
def test_connections_end_with_or_without_a_farewell(reset: bool) -> None:
    """The server sees the end of each connection, or an error after a reset."""
    seen: queue.Queue[bytes | str] = queue.Queue()

    def serve(connection: Connection) -> None:
        try:
            seen.put(connection.socket.recv(1))
        except ConnectionResetError:
            seen.put("reset")

    with FakeNode(serve) as node:
        Traffic(node.address, RpcDialect("db", RECORDS), Load(connections=2)).close(reset=reset)
        assert [seen.get(timeout=60) for _ in range(2)] == 2 * ["reset" if reset else b""]


def test_nobody_there() -> None:
    """An unreachable server is an error, not an outcome."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(Unavailable, match=r"connection 1 of 2 to 127\.0\.0\.1:.* refused"):
        run(f"127.0.0.1:{port}", "db", RECORDS, Load(connections=2))


def test_an_interrupt_ends_a_run() -> None:
    """Ctrl-C works while the loop runs without the GIL."""

    def interrupted(address: str) -> None:  # On a busy machine the timer is early.
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            run(address, "db", RECORDS, Load(duration_s=60))
        finally:
            timer.join()

    with FakeNode(store(HELD)) as node, pytest.raises(KeyboardInterrupt):
        interrupted(node.address)


@pytest.mark.parametrize(
    "wrong",
    [
        {"connections": 0},
        {"in_flight": 0},
        {"batch": -1},
        {"rate": 0},
        {"duration_s": 0},
        {"requests": 0},
        {"duration_s": None},
        {"warm_up_s": -1},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"connections": 10_000, "in_flight": 10_000},
    ],
)
def test_a_load_that_makes_no_sense(wrong: dict[str, float | None]) -> None:
    """Each setting is checked at once, and the error has the value."""
    with pytest.raises(ValueError, match=r"got|in flight"):
        Load(**wrong)
