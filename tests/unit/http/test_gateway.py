"""The gateway over streams in memory, in virtual time: the limits of connections, and their ends."""

from __future__ import annotations

import contextlib
import errno
from math import inf

import pytest
import trio
from trio.testing import lockstep_stream_pair, memory_stream_pair

from gossipkv.http.answers import HttpAnswer
from gossipkv.http.gateway import HttpGateway
from gossipkv.http.order import GatewayLimits
from gossipkv.http.site import Site
from tests.unit.http.asking import context_of, read_answers
from tests.unit.http.fake_node import FakeDatabase, FakeNode
from tests.world.logs import capture_logs

GET = b"GET /db/%b HTTP/1.1\r\nHost: h\r\n\r\n"
BIG = b"x" * 3_000_000


def a_node():
    """Return a node with a small value and a value that fits no packet."""
    return FakeNode({"db": FakeDatabase({"1": {b"k": b"value", b"big": BIG}}, "1", {"1": 0})})


class Made:
    """A site with a given answer function."""

    def __init__(self, answering):
        self.is_draining = False
        self._answering = answering

    def drain(self):
        self.is_draining = True

    async def answer(self, request):
        return await self._answering(request)


class Newcomers(trio.abc.Listener):
    """A listener to which a test sends streams, or errors to raise."""

    def __init__(self):
        self._send, self._receive = trio.open_memory_channel(1000)

    def arrive(self, found):
        self._send.send_nowait(found)

    async def connect(self):
        ours, theirs = memory_stream_pair()
        self.arrive(theirs)
        return ours

    async def accept(self):
        found = await self._receive.receive()
        if isinstance(found, OSError):
            raise found
        return found

    async def aclose(self):
        """Stop accepting after a moment, so that other tasks may run before."""
        try:
            await trio.sleep(0.01)
        finally:
            self._receive.close()


def gateway_of(site=None, **limits):
    """Return a gateway in front of a fake node, or of a site."""
    return HttpGateway(site or Site(context_of(a_node()), {}, None), GatewayLimits(**limits))


async def received(stream):
    """Return all bytes until the other end closes."""
    parts = []
    try:
        while part := await stream.receive_some():
            parts.append(part)
    except trio.BrokenResourceError:
        pass
    return b"".join(parts)


async def has_ended(stream):
    """Return True if the other end closes within a second without sending."""
    with trio.move_on_after(1):
        assert await received(stream) == b""
        return True
    return False


async def answers_to(stream, sent, count):
    """Send; return the bytes received once there are `count` answers."""
    await stream.send_all(sent)
    came = b""
    while came.count(b"HTTP/1.1 ") < count or b"\r\n\r\n" not in came:
        part = await stream.receive_some()
        assert part, came
        came += part
    return came


async def test_a_thousand_pipelined_requests_are_answered_in_order(autojump_clock, nursery):
    gateway = gateway_of()
    ours, theirs = memory_stream_pair()
    nursery.start_soon(gateway.converse, theirs)
    await ours.send_all(b"".join(GET % (b"k" if number % 2 else b"none") for number in range(1000)))
    await ours.send_eof()
    answers = read_answers(await received(ours), ["GET"] * 1000)
    assert [status for status, _, _ in answers] == [404, 200] * 500
    assert {body for status, _, body in answers if status == 200} == {b"value"}


async def test_headers_that_drip_have_so_much_time(autojump_clock, nursery):
    """The time counts from the first byte; then comes 408.  Another connection is served meanwhile."""
    gateway = gateway_of(request_timeout_ms=5000)
    newcomers = Newcomers()
    nursery.start_soon(gateway.run, newcomers)
    slow, quick = await newcomers.connect(), await newcomers.connect()

    async def drip():
        for number in range(1000):
            await slow.send_all((GET % b"k")[number : number + 1] or b"x")
            await trio.sleep(1)

    began = trio.current_time()
    with contextlib.suppress(trio.BrokenResourceError):
        await drip()
    assert 5 <= trio.current_time() - began <= 8
    ((status, headers, body),) = read_answers(await received(slow), ["GET"])
    assert (status, headers[b"connection"]) == (408, b"close")
    assert b"did not arrive completely within 5 s" in body
    assert b" 200 " in await answers_to(quick, GET % b"k", 1)
    nursery.cancel_scope.cancel()


async def test_an_idle_connection_ends_without_a_word(autojump_clock, nursery):
    """Each request restarts the idle time; 0 means no limit."""
    for timeout_ms, lasts in ((10_000, False), (0, True)):
        gateway = gateway_of(idle_timeout_ms=timeout_ms)
        newcomers = Newcomers()
        nursery.start_soon(gateway.run, newcomers)
        stream = await newcomers.connect()
        for _ in range(3):
            await trio.sleep(8)
            await answers_to(stream, GET % b"k", 1)
        with trio.move_on_after(100) as limit:
            assert await received(stream) == b""
        assert limit.cancelled_caught == lasts
    nursery.cancel_scope.cancel()


async def test_who_takes_nothing_is_closed(autojump_clock, nursery):
    """The time counts from the last piece taken; a slow reader gets the whole answer."""
    for pause_s, is_whole in ((6.0, True), (30.0, False)):
        gateway = gateway_of(output_timeout_ms=10_000)
        newcomers = Newcomers()
        nursery.start_soon(gateway.run, newcomers)
        ours, theirs = lockstep_stream_pair()
        newcomers.arrive(theirs)
        await ours.send_all(GET % b"big")
        came = b""
        with contextlib.suppress(trio.BrokenResourceError):
            while not came.endswith(BIG):
                await trio.sleep(pause_s)
                if not (part := await ours.receive_some(100_000)):
                    break
                came += part
        assert came.endswith(BIG) == is_whole
    nursery.cancel_scope.cancel()


async def test_for_one_more_the_longest_idle_makes_room(autojump_clock, nursery):
    """If all connections are busy, the new one is refused."""
    busy = trio.Event()

    async def answering(request):
        if request.target == b"/busy":
            await busy.wait()
        return HttpAnswer(200, [], b"")

    gateway = gateway_of(Made(answering), max_connections=2)
    newcomers = Newcomers()
    nursery.start_soon(gateway.run, newcomers)
    first, second = await newcomers.connect(), await newcomers.connect()
    await answers_to(first, GET % b"k", 1)
    await answers_to(second, GET % b"k", 1)
    await answers_to(first, GET % b"k", 1)
    third = await newcomers.connect()
    await answers_to(third, GET % b"k", 1)
    assert [await has_ended(stream) for stream in (first, second)] == [False, True]
    for stream in (first, third):
        await stream.send_all(b"GET /busy HTTP/1.1\r\nHost: h\r\n\r\n")
    await trio.testing.wait_all_tasks_blocked()
    refused = await newcomers.connect()
    assert await received(refused) == b""
    busy.set()
    for stream in (first, third):
        assert b" 200 " in await answers_to(stream, b"", 1)
    nursery.cancel_scope.cancel()


async def test_beyond_what_all_may_hold_the_largest_is_closed(autojump_clock, nursery):
    """A client that does not take a large answer is closed; small ones stay."""
    gateway = gateway_of(held_bytes=5_000_000)
    newcomers = Newcomers()
    nursery.start_soon(gateway.run, newcomers)
    small = await newcomers.connect()
    hungry = []
    for _ in range(2):
        ours, theirs = lockstep_stream_pair()
        newcomers.arrive(theirs)
        await ours.send_all(GET % b"big")
        hungry.append(ours)
        await trio.testing.wait_all_tasks_blocked()
    ends = []
    for stream in hungry:
        with trio.move_on_after(1):
            ends.append(len(await received(stream)) >= len(BIG))
    assert ends.count(True) + (2 - len(ends)) == 1
    assert b" 200 " in await answers_to(small, GET % b"k", 1)
    nursery.cancel_scope.cancel()
    assert gateway._troubles["closed_memory"] == 1


async def test_a_body_on_its_way_counts(autojump_clock, nursery):
    """Half-sent bodies count for the limit as well."""
    gateway = gateway_of(held_bytes=1_000_000)
    newcomers = Newcomers()
    nursery.start_soon(gateway.run, newcomers)
    streams = [await newcomers.connect() for _ in range(4)]
    for number, stream in enumerate(streams):
        await stream.send_all(b"POST /db/_mget HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n")
        await stream.send_all(b"x" * (300_000 + number))
        await trio.testing.wait_all_tasks_blocked()
    assert gateway._held_bytes <= 1_000_000
    assert gateway._troubles["closed_memory"] == 1
    assert await received(streams[2]) == b""  # This connection held most when the limit was exceeded.
    nursery.cancel_scope.cancel()


async def test_a_drain_lets_answers_out(autojump_clock, nursery):
    """Idle connections end at once, a waiting request gets a last answer, and no connection is accepted."""
    going = trio.Event()

    async def answering(request):
        if request.target == b"/slow":
            await going.wait()
        return HttpAnswer(200, [], b"done")

    site = Made(answering)
    gateway = gateway_of(site)
    newcomers = Newcomers()
    nursery.start_soon(gateway.run, newcomers)
    idle, slow = await newcomers.connect(), await newcomers.connect()
    await answers_to(idle, GET % b"k", 1)
    await slow.send_all(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(gateway.drain, 10)
    assert await has_ended(idle)
    assert site.is_draining
    with pytest.raises(trio.BrokenResourceError):
        await newcomers.connect()
    going.set()
    ((status, headers, body),) = read_answers(await received(slow), ["GET"])
    assert (status, headers.get(b"connection"), body) == (200, b"close", b"done")


async def test_a_drain_ends_in_time(autojump_clock, nursery):
    """Connections without an answer by then are cut off and counted in the log."""

    async def answering(_request):
        await trio.sleep_forever()

    gateway = gateway_of(Made(answering))
    newcomers = Newcomers()
    async with trio.open_nursery() as serving:
        serving.start_soon(gateway.run, newcomers)
        stream = await newcomers.connect()
        await stream.send_all(GET % b"k")
        await trio.testing.wait_all_tasks_blocked()
        with capture_logs() as lines:
            began = trio.current_time()
            await gateway.drain(10)
            assert trio.current_time() - began == pytest.approx(10)
    assert [(line["event"], line["connections"]) for line in lines] == [("http_cut", 1)]
    assert await received(stream) == b""


def streaming(site_log, *pieces):
    """Return a site of which each answer is some pieces, and then waits."""

    async def body():
        try:
            for piece in pieces:
                site_log.append(len(piece))
                yield piece
            await trio.sleep_forever()
        finally:
            site_log.append("ended")

    async def answering(_request):
        return HttpAnswer(200, [], body())

    return Made(answering)


async def test_a_piece_leaves_at_once(autojump_clock, nursery):
    """The head and the first piece do not wait for the second one, nor for a full packet."""
    log = []
    ours, theirs = memory_stream_pair()
    nursery.start_soon(gateway_of(streaming(log, b"one")).converse, theirs)
    await ours.send_all(GET % b"k")
    came = b""
    while not came.endswith(b"3\r\none\r\n"):
        came += await ours.receive_some()
    assert came.startswith(b"HTTP/1.1 200 OK\r\n")
    assert log == [3]


async def test_a_slow_reader_holds_one_piece(autojump_clock, nursery):
    log = []
    ours, theirs = lockstep_stream_pair()
    nursery.start_soon(gateway_of(streaming(log, *(b"x" * 1000 for _ in range(9)))).converse, theirs)
    await ours.send_all(GET % b"k")
    for pieces in range(1, 9):
        await trio.testing.wait_all_tasks_blocked()
        assert len(log) == pieces
        while not (await ours.receive_some()).endswith(b"x\r\n"):
            pass


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_client_that_leaves_frees_what_waits_for_it(is_stream, autojump_clock, nursery):
    """Within a second; a client that only ends its sending has as long for its answer as a node usually needs."""
    log, left = [], set()

    async def answering(request):
        try:
            await trio.sleep(0.3 if request.target == b"/quick" else inf)
        finally:
            log.append("ended")
        return HttpAnswer(200, [], b"done")

    site = streaming(log, b"one") if is_stream else Made(answering)
    gateway = HttpGateway(site, GatewayLimits(), ended_streams=left.intersection)
    newcomers = Newcomers()
    nursery.start_soon(gateway.run, newcomers)
    for moment_s in (0.0, 0.2, 0.9):
        log.clear()
        ours, theirs = memory_stream_pair()
        newcomers.arrive(theirs)
        await ours.send_all(b"GET /long HTTP/1.1\r\nHost: h\r\n\r\n")
        await trio.sleep(moment_s)
        assert "ended" not in log
        left.add(theirs)
        await trio.sleep(0.99)
        assert log[-1] == "ended"
    if not is_stream:
        ours, theirs = memory_stream_pair()
        left.add(theirs)
        newcomers.arrive(theirs)
        await ours.send_all(b"GET /quick HTTP/1.1\r\nHost: h\r\n\r\n")
        assert b"done" in await answers_to(ours, b"", 1)


async def test_a_defect_costs_one_request(autojump_clock, nursery):
    """The answer is 500 with the id of the logged traceback; the connection goes on."""

    async def answering(request):
        if request.target == b"/db/bad":
            raise ZeroDivisionError
        return HttpAnswer(200, [], b"fine")

    gateway = gateway_of(Made(answering))
    ours, theirs = memory_stream_pair()
    nursery.start_soon(gateway.converse, theirs)
    with capture_logs() as lines:
        await ours.send_all(GET % b"bad" + GET % b"k")
        await ours.send_eof()
        first, second = read_answers(await received(ours), ["GET", "GET"])
    assert (first[0], first[1][b"x-gossipkv-error"], second[0]) == (500, b"INTERNAL", 200)
    (line,) = lines
    assert (line["event"], isinstance(line["exc_info"], ZeroDivisionError)) == ("http_defect", True)
    assert line["id"].encode() in first[2]


async def test_a_defect_amid_a_stream_cuts_it_off(autojump_clock, nursery):
    """The last chunk is missing, so that no client takes the answer for whole."""

    async def pieces():
        yield b"first"
        raise ZeroDivisionError

    async def answering(_request):
        return HttpAnswer(200, [], pieces())

    gateway = gateway_of(Made(answering))
    ours, theirs = memory_stream_pair()
    nursery.start_soon(gateway.converse, theirs)
    with capture_logs() as lines:
        await ours.send_all(GET % b"k")
        await ours.send_eof()
        came = await received(ours)
    assert b"0\r\n\r\n" not in came
    assert [line["event"] for line in lines] == ["http_defect"]


async def test_a_stream_ends_with_its_reader(autojump_clock, nursery):
    """The source is read only as far as the client takes it, and is closed with the connection."""
    ended = trio.Event()
    made = []

    async def pieces():
        try:
            for _ in range(1000):
                made.append(None)
                yield b"x" * 10_000
        finally:
            ended.set()

    async def answering(_request):
        return HttpAnswer(200, [], pieces())

    gateway = gateway_of(Made(answering))
    ours, theirs = lockstep_stream_pair()
    nursery.start_soon(gateway.converse, theirs)
    await ours.send_all(GET % b"k")
    await ours.receive_some(10)
    await trio.testing.wait_all_tasks_blocked()
    assert len(made) < 100
    await ours.aclose()
    with trio.fail_after(100):
        await ended.wait()


async def test_a_refusal_is_read_by_who_still_sends(autojump_clock, nursery):
    """Input after a refusal is discarded for a moment, so that no reset destroys the answer."""
    gateway = gateway_of()
    ours, theirs = memory_stream_pair()
    nursery.start_soon(gateway.converse, theirs)
    await ours.send_all(b"BAD\r\n\r\n" + b"x" * 300_000)
    await ours.send_all(b"x" * 300_000)
    came = await received(ours)
    assert came.startswith(b"HTTP/1.1 400 ")
    ((status, headers, _),) = read_answers(came, ["GET"])
    assert (status, headers[b"connection"]) == (400, b"close")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOBUFS])
async def test_a_machine_that_is_short_of_something(autojump_clock, nursery, number):
    """A transient error delays accepting; any other error is a defect."""
    gateway = gateway_of()
    newcomers = Newcomers()
    newcomers.arrive(OSError(number, "short"))
    nursery.start_soon(gateway.run, newcomers)
    stream = await newcomers.connect()
    assert b" 200 " in await answers_to(stream, GET % b"k", 1)
    assert gateway._troubles["accept_pauses"] == 1
    nursery.cancel_scope.cancel()


async def test_troubles_are_told_once_a_minute(autojump_clock, nursery):
    """Each kind of trouble has one line with its count."""
    gateway = gateway_of(max_connections=1)
    newcomers = Newcomers()
    with capture_logs() as lines:
        nursery.start_soon(gateway.run, newcomers)
        for _ in range(3):
            await answers_to(await newcomers.connect(), GET % b"k", 1)
        await trio.sleep(200)
    assert [(line["event"], line["reason"], line["count"]) for line in lines] == [
        ("http_trouble", "closed_idle_for_others", 2)
    ]
    nursery.cancel_scope.cancel()
