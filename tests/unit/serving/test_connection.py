"""The connection core, driven by hand: answers, refusals, back-pressure, timeouts and cleanup."""

from __future__ import annotations

import itertools
import random
import resource
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.wire import rpc
from gossipkv.wire.frames import MAX_DEPTH
from tests.unit.serving.driven import Peer, make_core, one_database
from tests.world._world import Driver

if TYPE_CHECKING:
    from gossipkv.serving._serving import Core
    from gossipkv.wire.rpc import Value

PING = rpc.request(1, "ping", [])


def echo(peer: Peer, msgid: int, result: Value) -> bool:
    return peer.driver.reply(peer.handle, msgid, rpc.response(msgid, result))


def test_ping_is_answered_in_the_core() -> None:
    assert Peer(make_core()).ask("ping") == [None, "pong"]


def test_ping_with_parameters_is_handed_off() -> None:
    """Python answers with the error."""
    assert Peer(make_core()).hands_off("ping", 1)


def test_unknown_methods_are_handed_off() -> None:
    peer = Peer(make_core())
    for number, method in enumerate(["", "nope", "get_", "ge", "x" * 1000]):
        assert peer.hands_off(method, number)


def test_requests_are_answered_as_they_complete() -> None:
    """Local answers overtake those from Python; each has its id."""
    peer = Peer(make_core())
    hand_offs = peer.send(rpc.request(1, "info", []) + rpc.request(2, "ping", []) + rpc.request(3, "status", [{}]))
    assert [(msgid, method) for _, msgid, method, _ in hand_offs] == [(1, b"info"), (3, b"status")]
    assert peer.answers() == [[1, 2, None, "pong"]]
    assert echo(peer, 3, "three")
    assert echo(peer, 1, "one")
    peer.take()
    assert peer.answers() == [[1, 3, None, "three"], [1, 1, None, "one"]]


def test_a_reply_is_given_once() -> None:
    """A second reply, and a reply to no request, are dropped and counted."""
    peer = Peer(make_core())
    peer.send(rpc.request(1, "info", []))
    assert echo(peer, 1, "first")
    assert not echo(peer, 1, "second")
    assert not echo(peer, 2, "never asked")
    peer.take()
    assert peer.answers() == [[1, 1, None, "first"]]
    assert peer.core.counters()["replies_dropped"] == 2


def test_a_late_reply_finds_nobody() -> None:
    """The handle contains a generation, so that a reused slot gets no reply of its former connection."""
    core = make_core()
    first = Peer(core)
    first.send(rpc.request(1, "info", []))
    first.driver.close(first.handle)
    second = Peer(core)
    second.send(rpc.request(1, "info", []))
    assert second.handle != first.handle
    assert not echo(first, 1, "for the first")
    second.take()
    assert second.received == b""
    assert core.counters()["in_flight"] == 1


def test_an_id_in_flight_cannot_be_used_again() -> None:
    """The second request gets BAD_REQUEST, the first is answered, and then the id is free."""
    peer = Peer(make_core())
    peer.send(rpc.request(5, "info", []))
    for method in ("info", "ping"):
        (code, message, _), result = peer.ask(method, msgid=5)
        assert (code, result) == ("BAD_REQUEST", None)
        assert "still in flight" in message
    assert echo(peer, 5, "answer")
    peer.take()
    assert peer.answers() == [[1, 5, None, "answer"]]
    assert peer.hands_off("info", msgid=5)
    assert peer.core.counters()["duplicate_ids"] == 2


def test_a_reply_larger_than_a_frame() -> None:
    """The client gets TOO_LARGE with limit and size."""
    peer = Peer(make_core(max_frame=1000))
    peer.send(rpc.request(1, "scan", []))
    echo(peer, 1, b"x" * 1000)
    peer.take()
    ((_, msgid, (code, _, details), result),) = peer.answers()
    assert (msgid, code, result) == (1, "TOO_LARGE", None)
    assert details == {"limit": 1000, "size": 1007}


@pytest.mark.parametrize(
    "data",
    [
        b"\x94\x00\x07\xa1m\x80",  # The parameters are a map.
        b"\x94\x00\x07\x05\x90",  # The method is a number.
        b"\x94\x00\x07\xc0\x90",
        b"\x93\x00\x07\xa1m",  # The message has three elements.
        b"\x95\x00\x07\xa1m\x90\x90",  # The message has five elements.
        b"\x92\x00\x07",
        b"\x94\x00\x07\x90\x90",
    ],
)
def test_wrong_requests_with_an_id_get_an_error(data: bytes) -> None:
    """BAD_REQUEST comes under the id, and the connection goes on."""
    peer = Peer(make_core())
    assert peer.send(data + PING) == []
    refused, pong = peer.answers()
    assert refused[:2] == [1, 7]
    assert refused[2][0] == "BAD_REQUEST"
    assert pong == [1, 1, None, "pong"]
    assert not peer.driver.should_close(peer.handle)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x07", "bad_message"),
        (b"\x90", "bad_message"),
        (b"\x80", "bad_message"),
        (b"\x94\x03\x07\xa1m\x90", "bad_message"),
        (b"\x94\x00\xff\xa1m\x90", "bad_message"),  # The id is negative.
        (b"\x94\x00\xd0\xff\xa1m\x90", "bad_message"),
        (b"\x94\x00\xa1x\xa1m\x90", "bad_message"),
        (b"\x94\x00\xcf\x00\x00\x00\x01\x00\x00\x00\x00\xa1m\x90", "bad_message"),  # The id is 2**32.
        (b"GET / HTTP/1.1\r\n", "bad_message"),
        (rpc.response(1, None), "unasked_response"),
        (b"\xc1", "bad_frame"),
        (b"\xd4\x00\x00", "bad_frame"),
        (b"\xdd\xff\xff\xff\xff", "bad_frame"),
    ],
)
def test_what_has_no_id_ends_the_connection(data: bytes, reason: str) -> None:
    """The connection ends without an answer, and the reason is counted; others are not affected."""
    core = make_core()
    peer, other = Peer(core), Peer(core)
    assert peer.send(PING + data + PING) == []
    assert peer.answers() == [[1, 1, None, "pong"]]
    assert peer.driver.should_close(peer.handle)
    assert not peer.driver.wants_input(peer.handle)
    assert other.ask("ping") == [None, "pong"]
    peer.driver.close(peer.handle)
    assert core.counters()[f"closed_{reason}"] == 1
    assert core.counters()["held_bytes"] == 0


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        (b"\xa3put\x91\xc6\xff\xff\xff\xff", "TOO_LARGE"),
        (b"\xa3put\x91\xdd\xff\xff\xff\xff", "BAD_REQUEST"),
        (b"\xa3put" + b"\x91" * MAX_DEPTH, "BAD_REQUEST"),
        (b"\xa3put\x91\xc1", "BAD_REQUEST"),
        (b"\xd4\x00\x00\x90", "BAD_REQUEST"),
    ],
)
def test_a_refused_frame_is_answered_under_its_id(rest: bytes, code: str) -> None:
    """The error comes under the id, and then the connection ends, since the next boundary is unknown."""
    peer = Peer(make_core())
    peer.send(rpc.request(1, "info", []))
    peer.send(b"\x94\x00\xcd\x01\x00" + rest)
    ((_, msgid, error, _),) = peer.answers()
    assert (msgid, error[0]) == (256, code)
    assert not peer.driver.should_close(peer.handle), "an earlier request is still owed an answer"
    echo(peer, 1, "answer")
    peer.take()
    assert peer.answers() == [[1, 1, None, "answer"]]
    assert peer.driver.should_close(peer.handle)


def test_notifications_are_ignored_and_counted() -> None:
    peer = Peer(make_core())
    assert peer.send(rpc.notification("anything", [1, {"a": 2}]) + b"\x91\x02" + PING) == []
    assert peer.answers() == [[1, 1, None, "pong"]]
    assert peer.core.counters()["notifications_ignored"] == 2


def test_a_frame_at_the_limit_and_one_over() -> None:
    for size, handed_off in ((1000, True), (1001, False)):
        peer = Peer(make_core(max_frame=1000))
        frame = rpc.request(1, "m", [b"x" * (size - 9)])
        assert len(frame) == size
        assert bool(peer.send(frame)) is handed_off
        assert peer.driver.wants_input(peer.handle) is handed_off


def test_hand_offs_in_flight_hold_reading_back() -> None:
    """At `max_in_flight` the connection is not read; requests that had arrived continue in order."""
    core = make_core(max_in_flight=3)
    peer, other = Peer(core), Peer(core)
    stream = b"".join(rpc.request(number, "info", []) for number in range(8)) + rpc.request(8, "ping", [])
    waiting = [msgid for _, msgid, _, _ in peer.send(stream)]
    assert waiting == [0, 1, 2]
    assert not peer.driver.wants_input(peer.handle)
    assert other.ask("ping") == [None, "pong"]
    with pytest.raises(ValueError, match="does not read now"):
        peer.driver.feed(peer.handle, PING, 1)
    answered = []
    while waiting:
        answered.append(waiting.pop(0))
        echo(peer, answered[-1], None)
        waiting += [msgid for _, msgid, _, _ in peer.driver.run(1)]
        assert len(waiting) <= 3
    assert answered == list(range(8))
    peer.take()
    assert sorted(answer[1] for answer in peer.answers()) == list(range(9))
    assert peer.driver.wants_input(peer.handle)
    assert core.counters()["paused_for_hand_offs"] > 0
    assert core.counters()["held_bytes"] == 0


def test_a_peer_that_does_not_read_is_not_read(tmp_path: Path) -> None:
    """Answers beyond `max_queued` stop reading, which bounds the memory; reading resumes later."""
    core = make_core(max_queued=10_000)
    core.publish(one_database(tmp_path, {b"k": b"x" * 1000}).table())
    peer, other = Peer(core), Peer(core)
    for _ in range(5):
        if peer.driver.wants_input(peer.handle):
            peer.driver.feed(peer.handle, rpc.request(1, "get", ["db", b"k"]) * 100, 1)
    assert not peer.driver.wants_input(peer.handle)
    assert core.counters()["held_bytes"] < 10_000 + 1100 + 100 * 20
    assert other.ask("get", "db", b"k") == [None, [b"x" * 1000, "v1"]]
    while not peer.driver.wants_input(peer.handle):
        peer.received += peer.driver.take_output(peer.handle, 700, 1)
        assert peer.driver.run(1) == []
    while output := peer.driver.take_output(peer.handle, 700, 1):
        peer.received += output
    assert peer.answers() == [[1, 1, None, [b"x" * 1000, "v1"]]] * 100
    assert core.counters()["held_bytes"] == 0


def test_large_answers_come_in_bursts(tmp_path: Path) -> None:
    """A turn is bounded in bytes, so that other connections get theirs."""
    core = make_core(max_queued=1 << 30, max_held=1 << 30)
    core.publish(one_database(tmp_path, {b"k": b"x" * 100_000}).table())
    peer = Peer(core)
    peer.driver.feed(peer.handle, rpc.request(1, "get", ["db", b"k"]) * 30, 1)
    first = len(peer.driver.take_output(peer.handle, 1 << 30, 1))
    assert 256 * 1024 <= first < 256 * 1024 + 200_000
    rounds = 0
    received = first
    while received < 30 * 100_015 - 100:
        peer.driver.run(1)
        received += len(peer.driver.take_output(peer.handle, 1 << 30, 1))
        rounds += 1
    assert 5 < rounds < 15


def test_all_memory_together_is_bounded() -> None:
    """The connection that would exceed `max_held` is closed; others go on."""
    core = make_core(max_held=100_000, max_frame=60_000)
    first, second, third = Peer(core), Peer(core), Peer(core)
    half_sent = rpc.request(1, "m", [b"x" * 50_000])[:-1]
    assert first.send(half_sent) == []
    assert second.send(half_sent) == []
    assert second.driver.should_close(second.handle)
    assert third.ask("ping") == [None, "pong"]
    second.driver.close(second.handle)
    assert core.counters()["closed_memory"] == 1
    ((_, _, method, _),) = first.send(b"x")
    assert method == b"m"
    assert core.counters()["held_bytes"] == 0


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def test_large_frames_leave_no_memory_behind() -> None:
    """A hundred connections that each sent 1 MiB and one byte hold only the bytes."""
    core = make_core(max_frame=1 << 21, max_connections=200)
    frame = rpc.request(1, "m", [b"x" * (1 << 20)])
    Peer(core).send(frame + b"\x94")
    before = resident_bytes()
    peers = [Peer(core) for _ in range(100)]
    for peer in peers:
        peer.driver.feed(peer.handle, frame[: 1 << 19], 1)
        peer.driver.feed(peer.handle, frame[1 << 19 :] + b"\x94", 1)
    assert core.counters()["held_bytes"] == 101
    assert resident_bytes() - before < 20 << 20


def test_another_thread_is_refused() -> None:
    driver = Driver(make_core())
    refused: list[str] = []

    def reply() -> None:
        try:
            driver.reply(1 << 32, 1, b"x")
        except RuntimeError as error:
            refused.append(str(error))

    thread = threading.Thread(target=reply)
    thread.start()
    thread.join()
    assert refused == ["a core belongs to the thread that made it"]


def test_connections_are_bounded() -> None:
    """A connection beyond `max_connections` is refused if all others have sent a request."""
    core = make_core(max_connections=3)
    driver = Driver(core)
    handles = []
    for _ in range(3):
        handles.append(driver.open(1))
        driver.receive(handles[-1], PING, 1)
    assert driver.open(1) is None
    assert core.counters()["connections_refused"] == 1
    assert handles[1] is not None
    driver.close(handles[1])
    again = driver.open(1)
    assert again is not None
    assert again not in handles
    assert core.counters()["connections"] == 3


def test_handles_that_are_gone() -> None:
    driver = Driver(make_core())
    handle = driver.open(1)
    assert handle is not None
    driver.close(handle)
    with pytest.raises(KeyError):
        driver.feed(handle, b"x", 1)
    with pytest.raises(KeyError):
        driver.close(handle + (5 << 32))


def test_half_sent_frames_time_out() -> None:
    """A frame has `frame_timeout` from its first byte."""
    peer = Peer(make_core(frame_timeout_ms=1000))
    peer.send(PING + PING[:2])
    for now_ms in range(100, 1001, 100):
        peer.now_ms = now_ms
        peer.send(b"")
        peer.driver.expire(now_ms)
        assert not peer.driver.should_close(peer.handle)
    peer.driver.expire(1002)
    assert peer.driver.should_close(peer.handle)
    peer.driver.close(peer.handle)
    assert peer.core.counters()["closed_frame_timeout"] == 1


def test_a_byte_now_and_then_does_not_help() -> None:
    """The timeout counts per frame, not per byte."""
    peer = Peer(make_core(frame_timeout_ms=1000))
    data = rpc.request(1, "m", [b"x" * 100])
    for at in range(100):
        peer.now_ms = 1 + 20 * at
        if peer.driver.should_close(peer.handle):
            break
        peer.send(data[at : at + 1])
        peer.driver.expire(peer.now_ms)
    assert 50 <= at <= 53


def test_each_frame_has_its_own_time() -> None:
    """A frame that begins at another's end starts a new timeout."""
    peer = Peer(make_core(frame_timeout_ms=1000))
    for step in range(10):
        peer.now_ms = 1 + 900 * step
        peer.send(PING[-3:] + PING[:-3] if step else PING[:-3])
        peer.driver.expire(peer.now_ms)
    assert not peer.driver.should_close(peer.handle)
    assert len(peer.answers()) == 9


def test_a_frame_that_we_hold_back_does_not_time_out() -> None:
    """The peer is not blamed while the node's own limits stop reading."""
    peer = Peer(make_core(frame_timeout_ms=1000, max_in_flight=1))
    peer.send(rpc.request(1, "info", []) + rpc.request(2, "info", []) + PING[:3])
    peer.driver.expire(5000)
    assert not peer.driver.should_close(peer.handle)
    echo(peer, 1, None)
    assert len(peer.driver.run(5000)) == 1
    echo(peer, 2, None)
    peer.driver.run(5000)
    peer.driver.take_output(peer.handle, 10_000, 5000)
    peer.driver.expire(5900)
    assert not peer.driver.should_close(peer.handle)
    peer.driver.expire(6001)
    assert peer.driver.should_close(peer.handle)


def test_a_peer_that_never_reads_times_out() -> None:
    """Unread answers end the connection; each read restarts the time."""
    peer = Peer(make_core(frame_timeout_ms=1000))
    peer.driver.feed(peer.handle, PING * 2, 1)
    peer.driver.expire(900)
    assert peer.driver.take_output(peer.handle, 1, 900) != b""
    peer.driver.expire(1800)
    assert not peer.driver.should_close(peer.handle)
    peer.driver.expire(1901)
    assert peer.driver.should_close(peer.handle)
    peer.driver.close(peer.handle)
    assert peer.core.counters()["closed_output_timeout"] == 1


def test_idle_connections_end() -> None:
    """A connection that waits for an answer is not idle."""
    core = make_core(idle_timeout_ms=5000)
    idle, waiting = Peer(core), Peer(core)
    waiting.send(rpc.request(1, "refresh", []))
    for now_ms, expected in ((5000, False), (5002, True)):
        idle.driver.expire(now_ms)
        assert idle.driver.should_close(idle.handle) is expected
    assert not waiting.driver.should_close(waiting.handle)


def test_the_end_of_input_leaves_what_was_asked() -> None:
    """A peer gets its answers after it has ended its input; then the connection is done."""
    peer = Peer(make_core())
    peer.send(rpc.request(1, "info", []) + PING[:2])
    peer.driver.end_input(peer.handle)
    assert not peer.driver.wants_input(peer.handle)
    assert not peer.driver.should_close(peer.handle)
    echo(peer, 1, "last")
    assert not peer.driver.should_close(peer.handle)
    peer.take()
    assert peer.answers() == [[1, 1, None, "last"]]
    assert peer.driver.should_close(peer.handle)


def test_a_client_that_may_be_gone_waits_half_a_second_for_each_answer() -> None:
    """It has ended its input, as a client that closes its connection does."""
    peer = Peer(make_core(), now_ms=1)
    peer.send(rpc.request(1, "info", []) + rpc.request(2, "info", []))
    peer.driver.end_input(peer.handle)
    peer.driver.expire(400)
    echo(peer, 1, "first")
    peer.driver.expire(800)
    assert not peer.driver.should_close(peer.handle)
    peer.driver.expire(1400)
    assert peer.driver.should_close(peer.handle)


def test_the_end_of_input_while_held() -> None:
    """Held-back requests are answered after the end of input."""
    peer = Peer(make_core(max_in_flight=1))
    peer.send(rpc.request(1, "a", []) + rpc.request(2, "b", []) + rpc.request(3, "ping", []))
    peer.driver.end_input(peer.handle)
    echo(peer, 1, None)
    assert [hand_off[1] for hand_off in peer.driver.run(1)] == [2]
    echo(peer, 2, None)
    assert peer.driver.run(1) == []
    peer.take()
    assert [answer[1] for answer in peer.answers()] == [1, 2, 3]
    assert peer.driver.should_close(peer.handle)


def test_hand_offs_of_one_step_are_bounded() -> None:
    """Python gets many requests in portions, in order."""
    peer = Peer(make_core(max_in_flight=100_000, max_queued=1 << 24))
    hand_offs = peer.send(b"".join(rpc.request(number, "info", []) for number in range(5000)))
    seen = []
    while hand_offs:
        assert len(hand_offs) <= 1024
        seen += [msgid for _, msgid, _, _ in hand_offs]
        hand_offs = peer.driver.run(1)
    assert seen == list(range(5000))


@given(st.integers(0, 2**32))
def test_ids_in_flight_are_a_set(seed: int) -> None:
    """Thousands of colliding additions and removals never give a wrong membership."""
    draw = random.Random(seed)
    peer = Peer(make_core(max_in_flight=300))
    ids = [draw.choice([1, 16, 2**16]) * draw.randrange(400) for _ in range(400)]
    open_ids: set[int] = set()
    for msgid in ids * 2:
        if draw.random() < 0.5 and len(open_ids) < 299:
            hand_offs = peer.send(rpc.request(msgid, "m", []))
            assert bool(hand_offs) is (msgid not in open_ids)
            open_ids.add(msgid)
        else:
            assert echo(peer, msgid, None) is (msgid in open_ids)
            open_ids.discard(msgid)
    assert peer.core.counters()["in_flight"] == len(open_ids)


MESSAGES = st.sampled_from(
    [
        PING,
        rpc.request(2, "info", []),
        rpc.request(70_000, "get", ["db", b"key"]),
        rpc.request(3, "get_many", ["db", [b"key", b"none"] * 40]),
        rpc.request(4, "get", ["nowhere", b"key"]),
        rpc.notification("n", [1]),
        b"\x93\x00\x09\xa1m",
        rpc.response(1, 2),
        b"\xc1",
        b"\x94\x00\x05\xa1m\x91\xd4",
    ]
)


def transcript(core: Core, pieces: list[bytes]) -> tuple[list[list[Value]], list[tuple[int, bytes, bytes]], bool]:
    """Return answers, hand-offs and end for these pieces; each hand-off is answered at once."""
    peer = Peer(core)
    handed_off = []
    for piece in pieces:
        if not peer.driver.wants_input(peer.handle):
            break
        waiting = peer.send(piece)
        while waiting:
            for _, msgid, method, params in waiting:
                handed_off.append((msgid, method, params))
                echo(peer, msgid, "python")
            waiting = peer.driver.run(1)
        peer.take()
    return sorted(peer.answers(), key=repr), handed_off, peer.driver.should_close(peer.handle)


@given(messages=st.lists(MESSAGES, max_size=12), cuts=st.lists(st.integers(0, 3000), max_size=15))
def test_splits_change_nothing(messages: list[bytes], cuts: list[int]) -> None:
    """Answers, hand-offs and end do not depend on how the stream is cut."""
    stream = b"".join(messages)
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    pieces = [stream[begin:end] for begin, end in itertools.pairwise(places) if begin < end]
    whole = transcript(make_core(max_in_flight=1), [stream] if stream else [])
    assert transcript(make_core(max_in_flight=1), pieces) == whole
    bytewise = [stream[at : at + 1] for at in range(len(stream))]
    assert transcript(make_core(max_in_flight=1), bytewise) == whole


def test_limits_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        make_core(max_queued=0)


def test_counters_have_a_name_each() -> None:
    """A quiet core has counted only its connections."""
    core = make_core()
    Peer(core)
    assert {name for name, count in core.counters().items() if count} == {"connections_accepted", "connections"}
    assert len(core.counters()) == 74


def test_raw_frames_with_every_head() -> None:
    """The widest forms of all heads are accepted."""
    peer = Peer(make_core())
    wide = b"\xdd\x00\x00\x00\x04\xcf" + bytes(8) + b"\xce\x00\x00\x00\x09\xdb\x00\x00\x00\x04ping\xdd\x00\x00\x00\x00"
    ((_, msgid, method, params),) = peer.send(wide)
    assert (msgid, method, params) == (9, b"ping", b"\xdd\x00\x00\x00\x00")
    assert msgpack.unpackb(params) == []
