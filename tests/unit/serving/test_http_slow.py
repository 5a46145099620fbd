"""HTTP answered by the loop agrees with oracle and gateway: streams cut anywhere, mutated and smuggled."""

from __future__ import annotations

import socket
from contextlib import closing, suppress

import pytest

from gossipkv.http.answers import text
from gossipkv.http.exchange import Dates, HttpExchange, RequestLimits
from tests.oracle.http import LONGEST_HEAD
from tests.unit.serving.driven import LIMITS
from tests.unit.serving.http_driven import QUIET_ROUNDS, Served, make_http_core, received_of
from tests.unit.serving.http_judging import judge, judge_all
from tests.unit.serving.http_smuggling import ATTACKS, FOLLOWED
from tests.unit.serving.http_world import DATE_S
from tests.world._world import Driver

PLAIN = b"GET /db/k HTTP/1.1\r\nHost: h\r\n\r\n"
OF_PYTHON = b"GET /carts/k HTTP/1.1\r\nHost: h\r\n\r\n"
LONG = b"GET /db/long HTTP/1.1\r\nHost: h\r\n\r\n"
STRANGE = b"POST /db/_mget HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n"
NOW_MS, HTTP = DATE_S * 1000, 2


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("http"))
    yield served
    served.close()


def test_drawn_streams_are_answered_as_far_as_they_are_plain(served):
    """From the first strange request on all bytes are left to the gateway."""
    judge_all(range(800), served.answer_stream)


@pytest.mark.parametrize("limits", [{"max_in_flight": 1}, {"max_in_flight": 2, "max_queued": 100}])
def test_drawn_streams_under_limits(tmp_path, limits):
    """Small limits make the loop read a pipeline in parts."""
    with closing(Served(tmp_path, **limits)) as served:
        judge_all(range(800, 1_100), served.answer_stream)


@pytest.mark.parametrize("name", [*ATTACKS, *FOLLOWED])
async def test_what_may_be_smuggled_is_left_whole(served, name):
    """The stream is left behind an answered request or none, also in two pieces."""
    stream = (ATTACKS | FOLLOWED)[name].stream
    for at in (1, len(stream) // 2, len(stream) - 1):
        await judge([stream[:at], stream[at:]], served.answer_stream)
        await judge([PLAIN + stream[:at], stream[at:]], served.answer_stream)


async def test_a_pipeline_is_the_same_wherever_it_is_cut(served):
    """The pipeline is cut in two at each byte, and into single bytes."""
    stream = PLAIN + OF_PYTHON + PLAIN.replace(b"k ", b"%6B ").replace(b"GET", b"HEAD") + STRANGE
    for at in range(1, len(stream)):
        await judge([stream[:at], stream[at:]], served.answer_stream)
    await judge([stream[at : at + 1] for at in range(len(stream))], served.answer_stream)


@pytest.mark.parametrize(
    "begun",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x94\x00\x07\xa3get\x92\xa3geo\xc4\x04lima",
        b"*1\r\n$4\r\nPING\r\n",
        b"PING\r\n",
        b"\r",
        b"GET http://h",
        b"GET /db/k HTTP/1.1\n",
        b"GET /db/k HTTP/1.1\r\nHost: h\nAccept: x",
        b"GET /db/k HTTP/1.1\r\nHost: h\r\n\n",
        b"GET /db/k HTTP/1.1\r\nHost\n",
        b"GET /db/k HTTP/1.1\r\nHost: h\r\nX\r\n\r\n",
    ],
)
def test_what_will_never_be_plain_is_not_waited_for(served, begun):
    """The gateway answers other protocols at once."""
    assert served.answer_stream([begun]) == (b"", begun, False)
    assert served.answer_stream([PLAIN, begun])[1:] == (begun, False)


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_the_longest_head(served, more):
    """A head of 8 KiB with its empty line is answered; all bytes of a longer one are left."""
    head = PLAIN.removesuffix(b"\r\n") + b"Cookie: \r\n\r\n"
    head = head.replace(b"Cookie: ", b"Cookie: " + b"c" * (LONGEST_HEAD + more - len(head)))
    told = served.answer_stream([head])
    assert (told.left, told.answered[:12]) == ((None, b"HTTP/1.1 200") if more <= 0 else (head, b""))
    await judge([PLAIN + head[:-5], head[-5:]], served.answer_stream)
    assert served.answer_stream([head[: LONGEST_HEAD - 3]]) == (b"", None, False)


def test_who_waits_to_be_left_costs_nothing(served):
    """The loop does no work while an earlier answer is pending."""
    with served.connect() as client:
        client.sendall(OF_PYTHON + STRANGE)
        served.until(lambda: len(served.hand_offs) == 1)
        for _ in range(3):
            served.step()
        assert not served.loop.has_work
        assert served.detached == []
        served.reply()
        served.until(lambda: served.detached != [])
        assert served.left() == STRANGE


def test_who_reads_slowly_is_left_when_all_is_read(tmp_path):
    """The loop does no work while the client of a long pipeline takes nothing."""
    with (
        closing(Served(tmp_path, max_queued=16 << 20, max_held=32 << 20)) as served,
        served.connect(receive_buffer=4096) as client,
    ):
        left = LONG * 3000 + STRANGE
        while left:
            with suppress(BlockingIOError):
                left = left[client.send(left) :]
            served.step()
        served.until(lambda: served.core.counters()["gets"] == 3000)
        for _ in range(QUIET_ROUNDS):
            served.step()
        assert served.core.counters()["held_bytes"] > 1 << 20
        assert (served.loop.has_work, served.detached) == (False, [])
        received = bytearray()
        while not served.detached:
            received += received_of(client)[0]
            served.step()

        def has_all() -> bool:  # The kernel still sends the last answers.
            received.extend(received_of(client)[0])
            return received.count(b"HTTP/1.1 200 OK\r\n") == 3000

        served.until(has_all)
        assert served.left() == STRANGE


async def test_a_peer_that_ends(served):
    """Complete requests are answered before the end; the gateway sees the end behind a strange request."""
    for stream, counter in ((PLAIN, "closed_by_peer"), (PLAIN + PLAIN[:20], "closed_by_peer"), (PLAIN + STRANGE, None)):
        before = served.core.counters()["closed_by_peer"]
        with served.connect() as client:
            client.sendall(stream)
            client.shutdown(socket.SHUT_WR)
            served.until(lambda: served.loop.connection_count == 0)
            answered, _ = received_of(client)
            assert answered.startswith(b"HTTP/1.1 200 OK")
            assert answered.count(b"HTTP/1.1") == 1
            assert served.left() == (STRANGE if counter is None else None)
        assert served.core.counters()["closed_by_peer"] - before == (counter is not None)


# Time -------------------------------------------------------------------------------------------------------------


def test_a_request_that_does_not_come_whole(tmp_path):
    """The request has the time of a frame, and the 408 has the gateway's words."""
    driver = Driver(make_http_core(tmp_path))
    handle = driver.open(NOW_MS, listener=HTTP)
    driver.feed(handle, PLAIN[:-1], NOW_MS)
    driver.expire(NOW_MS + LIMITS["frame_timeout_ms"] // 2)
    assert driver.take_output(handle, 1 << 20, NOW_MS) == b""
    assert not driver.should_close(handle)
    later_ms = NOW_MS + 2 * LIMITS["frame_timeout_ms"]
    driver.expire(later_ms)
    exchange = HttpExchange(RequestLimits(), dates=Dates(lambda: later_ms // 1000))
    line = f"the request did not arrive completely within {LIMITS['frame_timeout_ms'] / 1000:g} s"
    expected = exchange.whole(None, exchange.refuse(text(408, line)).answer)
    assert driver.take_output(handle, 1 << 20, later_ms) == expected
    assert driver.should_close(handle)


def test_what_is_strange_may_wait_for_what_was_asked_before(tmp_path):
    """A slow answer from Python does not count against the request behind it."""
    driver = Driver(make_http_core(tmp_path))
    handle = driver.open(NOW_MS, listener=HTTP)
    driver.feed(handle, OF_PYTHON + STRANGE, NOW_MS)
    driver.expire(NOW_MS + 2 * LIMITS["frame_timeout_ms"])
    assert not driver.should_close(handle)
