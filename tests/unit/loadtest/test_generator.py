"""The generator's loop, played turn by turn: when requests are sent, and that each is counted."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.loadtest._loadtest import Generator, RedisDialect, RpcDialect, Schedule
from tests.unit.loadtest.scripted import MS, RECORDS, Asked, Peer, Scripted, answer, right

ACCOUNTED = ("sent", "answered", "refused", "lost")


def test_a_closed_loop_asks_again_when_it_is_answered() -> None:
    """Each connection keeps its requests in flight until the last one."""
    with Scripted(connections=2, in_flight=3) as scripted:
        scripted.generator.begin(requests=8, now_ns=0)
        first, second = [peer.asked() for peer in scripted.peers]
        assert (len(first), len(second)) == (3, 3)
        assert scripted.turn(1)
        scripted.peers[0].send(right(first[2]))
        assert scripted.turn(2)
        (third,) = scripted.peers[0].asked()
        for asked in (first[0], first[1], third):
            scripted.peers[0].send(right(asked))
        scripted.turn(3)
        (last,) = scripted.peers[0].asked()
        scripted.peers[0].send(right(last))
        scripted.peers[1].send(b"".join(map(right, second)))
        assert not scripted.turn(4)
        assert scripted.counted(*ACCOUNTED) == [8, 8, 0, 0]
        ids = [each.message_id for each in (*first, third, last)]
        assert len(set(ids)) == len(ids)


def test_a_run_ends_after_its_time() -> None:
    """No request is sent after the end, and requests in flight are awaited."""
    with Scripted(in_flight=2) as scripted:
        scripted.generator.begin(duration_ns=10 * MS, now_ns=0)
        first, second = scripted.peer.asked()
        scripted.peer.send(right(first))
        assert scripted.turn(9 * MS)
        (third,) = scripted.peer.asked()
        scripted.peer.send(right(second))
        assert scripted.turn(10 * MS)
        assert scripted.peer.asked() == []
        scripted.peer.send(right(third))
        assert not scripted.turn(12 * MS)
        assert scripted.counted(*ACCOUNTED) == [3, 3, 0, 0]
        assert scripted.generator.duration_ns == 12 * MS


def test_runs_follow_each_other() -> None:
    """The second run has the same connections and its own counts."""
    with Scripted() as scripted:
        for _ in range(2):
            scripted.generator.begin(requests=1, now_ns=0)
            with pytest.raises(RuntimeError, match="under way"):
                scripted.generator.begin(requests=1, now_ns=0)
            (asked,) = scripted.peer.asked()
            scripted.peer.send(right(asked))
            assert not scripted.turn(5)
            assert scripted.counted("sent", "answered") == [1, 1]
            assert scripted.generator.tally.histogram.count == 1


def test_latency_of_a_closed_loop_counts_from_sending() -> None:
    """Each latency runs from the request's send to the answer's receive."""
    with Scripted(in_flight=2) as scripted:
        scripted.generator.begin(requests=3, now_ns=1000)
        first, second = scripted.peer.asked()
        scripted.peer.send(right(first))
        scripted.turn(1010)
        (third,) = scripted.peer.asked()
        scripted.peer.send(right(second) + right(third))
        scripted.turn(1025)
        histogram = scripted.generator.tally.histogram
        assert [histogram.quantile(share) for share in (0.3, 0.6, 1)] == [10, 15, 25]


def test_an_open_loop_keeps_its_rate_whatever_the_server_does() -> None:
    """Each request is sent when it is due, in turn over the connections, although none is answered."""
    with Scripted(connections=3, in_flight=4) as scripted:
        scripted.generator.begin(rate=1000, duration_ns=8 * MS, now_ns=0)
        sent = []
        for now in range(0, 12 * MS, MS // 2):
            scripted.turn(now)
            sent += [(now, number) for number, peer in enumerate(scripted.peers) for _ in peer.asked()]
        assert sent == [(at * MS, at % 3) for at in range(8)]
        assert scripted.generator.unsent == 0


def test_an_open_loop_counts_the_delay_of_a_stall() -> None:
    """Delayed requests are sent late, and counted from their due time."""
    with Scripted() as scripted:
        scripted.generator.begin(rate=1000, duration_ns=5 * MS, now_ns=0)
        scripted.turn(0)
        (asked,) = scripted.peer.asked()
        for now in range(1, 10):
            scripted.turn(now * MS)
            assert scripted.peer.asked() == []
        for number in range(5):  # The stall ends at 10 ms, and each answer then comes at once.
            scripted.peer.send(right(asked))
            assert scripted.turn(10 * MS + number) == (number < 4)
            scripted.turn(10 * MS + number)
            (asked,) = scripted.peer.asked() or [asked]
        found = [scripted.generator.tally.histogram.quantile((number + 1) / 5) for number in range(5)]
        assert found == pytest.approx([6 * MS, 7 * MS, 8 * MS, 9 * MS, 10 * MS], rel=1 / 32)
        assert scripted.counted(*ACCOUNTED) == [5, 5, 0, 0]


def test_an_open_loop_says_what_it_could_not_send() -> None:
    """Requests that found no free connection before the time-out are counted as unsent."""
    with Scripted(timeout_ms=100) as scripted:
        scripted.generator.begin(rate=1000, duration_ns=50 * MS, now_ns=0)
        scripted.turn(0)
        (asked,) = scripted.peer.asked()
        assert scripted.turn(90 * MS)
        scripted.peer.send(right(asked))
        scripted.turn(90 * MS)
        scripted.turn(90 * MS)
        (asked,) = scripted.peer.asked()
        scripted.turn(149 * MS)
        scripted.peer.send(right(asked))
        assert not scripted.turn(149 * MS)
        assert [*scripted.counted("sent", "answered"), scripted.generator.unsent] == [2, 2, 48]


def test_an_open_loop_that_is_stopped_has_sent_what_it_could() -> None:
    """Only requests that were due count as unsent, and requests in flight are awaited."""
    with Scripted(in_flight=2) as scripted:
        scripted.generator.begin(rate=1000, duration_ns=600_000 * MS, now_ns=0)
        for now in range(6):
            scripted.turn(now * MS)
        first, second = scripted.peer.asked()
        scripted.generator.stop(now_ns=5 * MS)
        assert scripted.generator.unsent == 4
        scripted.peer.send(right(first))
        assert scripted.turn(7 * MS)
        assert scripted.peer.asked() == []
        scripted.peer.send(right(second))
        assert not scripted.turn(8 * MS)
        assert [*scripted.counted(*ACCOUNTED), scripted.generator.unsent] == [2, 2, 0, 0, 4]
        scripted.generator.begin(rate=1000, duration_ns=5 * MS, now_ns=0)
        scripted.turn(0)
        assert scripted.generator.unsent == 4


def test_a_closed_loop_that_is_stopped_asks_no_more() -> None:
    """Requests in flight are awaited, and none is unsent."""
    with Scripted() as scripted:
        scripted.generator.begin(requests=100, now_ns=0)
        (asked,) = scripted.peer.asked()
        scripted.generator.stop(now_ns=1)
        scripted.peer.send(right(asked))
        assert not scripted.turn(2)
        assert [*scripted.counted(*ACCOUNTED), scripted.generator.unsent] == [1, 1, 0, 0, 0]


@given(st.floats(0.5, 5_000), st.integers(1, 400), st.integers(1, 60))
def test_an_open_loop_sends_what_is_due_and_no_more(rate: float, duration_ms: int, limit: int) -> None:
    """At any time the sent requests are those that were due; in the end their number is rate times duration."""
    with Scripted(connections=60) as scripted:
        scripted.generator.begin(rate=rate, duration_ns=duration_ms * MS, requests=limit, now_ns=0)
        for now_ms in range(0, duration_ms + 5, max(1, duration_ms // 7)):
            scripted.turn(now_ms * MS)
            due = sum(number * 1e9 / rate < now_ms * MS + 1 for number in range(limit))
            within = sum(number * 1000 / rate < duration_ms for number in range(limit))
            assert scripted.counted("sent") == [min(due, within)]


@pytest.mark.parametrize("rate", [0, 1000])
def test_a_silent_server_loses_the_connection(rate: float) -> None:
    """An unanswered request breaks its own connection, and the run ends without connections."""
    with Scripted(connections=2, in_flight=2, timeout_ms=100) as scripted:
        scripted.generator.begin(rate=rate, requests=1000, now_ns=0)
        now = 0
        while scripted.turn(now * MS):
            for asked in scripted.peers[1].asked() if now < 300 else ():
                scripted.peers[1].send(right(asked))
            now += 1
            if now == 150:
                assert (scripted.generator.tally.broken(), scripted.generator.connections) == ({"timeout": 1}, 1)
        assert 400 < now < 420
        assert scripted.generator.tally.broken() == {"timeout": 2}
        sent, answered, _, lost = scripted.counted(*ACCOUNTED)
        assert (lost, sent) == (4, answered + 4)


def test_an_answer_given_twice_breaks_the_connection() -> None:
    """The first answer counts, the second is unasked; the other connection goes on."""
    with Scripted(connections=2) as scripted:
        scripted.generator.begin(requests=4, now_ns=0)
        (first,), (second,) = [peer.asked() for peer in scripted.peers]
        scripted.peers[0].send(2 * right(first))
        assert scripted.turn(1)
        assert scripted.generator.tally.broken() == {"unasked": 1}
        for _ in range(3):
            scripted.peers[1].send(right(second))
            scripted.turn(2)
            (second,) = scripted.peers[1].asked() or [second]
        assert scripted.counted(*ACCOUNTED) == [4, 4, 0, 0]


@pytest.mark.parametrize(("stream", "reason"), [(b"\xc1", "garbage"), (answer(99, None), "unasked"), (b"", "closed")])
def test_a_broken_connection_loses_what_it_had_in_flight(stream: bytes, reason: str) -> None:
    """After garbage, an unknown id or an end, the requests in flight are lost."""
    with Scripted(in_flight=3) as scripted:
        scripted.generator.begin(requests=10, now_ns=0)
        asked = scripted.peer.asked()
        scripted.peer.send(right(asked[0])[:-1])
        scripted.turn(1)
        scripted.peer.send(right(asked[0])[-1:] + right(asked[1])[:5])
        scripted.turn(2)
        scripted.peer.send(right(asked[1])[5:] + stream)
        if not stream:
            scripted.turn(3)
            scripted.peer.end()
        assert not scripted.turn(3)
        assert scripted.generator.tally.broken() == {reason: 1}
        sent, answered, refused, lost = scripted.counted(*ACCOUNTED)
        assert (answered, refused, lost) == (2, 0, sent - 2)


def test_codes_are_counted_apart() -> None:
    """The first sixteen codes have counts of their own; others, and values that are no code, are joined."""
    with Scripted(in_flight=21) as scripted:
        scripted.generator.begin(requests=21, now_ns=0)
        codes = [*(f"CODE_{number}" for number in range(18)), "CODE_0", "", 5]
        for asked, code in zip(scripted.peer.asked(), codes, strict=True):
            scripted.peer.send(answer(asked.message_id, None, [code, "", {}]))
        assert not scripted.turn(1)
        assert scripted.counted(*ACCOUNTED) == [21, 0, 21, 0]
        assert scripted.generator.tally.errors() == {
            "CODE_0": 2,
            **{f"CODE_{at}": 1 for at in range(1, 16)},
            "other": 4,
        }
        assert scripted.generator.tally.histogram.count == 0


def test_the_first_wrong_value_is_kept() -> None:
    """The key, the expected value and the truncated answer are kept; later errors are only counted."""
    with Scripted([(b"k", b"right")], in_flight=2) as scripted:
        scripted.generator.begin(requests=2, now_ns=0)
        for asked, value in zip(scripted.peer.asked(), (b"w" * 100, None), strict=True):
            scripted.peer.send(answer(asked.message_id, [value, "1"]))
        scripted.turn(1)
        assert scripted.counted("answered", "wrong") == [2, 2]
        assert scripted.generator.tally.first_wrong() == (b"k", b"right", b"w" * 64, 100)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ([[b"v", b"v", b"more"], "1"], (None, None, None, 0)),
        ([[b"v"], "1"], (b"k", b"v", None, 0)),
        ([[b"v", None], "1"], (b"k", b"v", None, 0)),
        ([[b"v", b""], "1"], (b"k", b"v", b"", 0)),
    ],
)
def test_what_is_wrong_is_told(result: object, expected: tuple[object, ...]) -> None:
    """Additional, missing, nil and empty values are reported."""
    with Scripted([(b"k", b"v")], batch=2) as scripted:
        scripted.generator.begin(requests=1, now_ns=0)
        (asked,) = scripted.peer.asked()
        scripted.peer.send(answer(asked.message_id, result))
        scripted.turn(1)
        assert scripted.counted("wrong") == [1]
        assert scripted.generator.tally.first_wrong() == expected


def test_a_server_that_does_not_read_blocks_only_its_connection() -> None:
    """Requests wait in order until the socket takes them."""
    records = [(bytes([65 + number]) * 100_000, b"v") for number in range(5)]
    with Scripted(records, connections=2, in_flight=20) as scripted:
        scripted.generator.begin(requests=60, now_ns=0)
        slow, fast = scripted.peers
        scripted.turn(1)
        while scripted.counted("answered") != [40]:
            fast.send(b"".join(right(asked, records) for asked in fast.asked()))
            scripted.turn(2)
        while scripted.turn(3):
            slow.send(b"".join(right(asked, records) for asked in slow.asked()))
        assert scripted.counted(*ACCOUNTED) == [60, 60, 0, 0]


def test_a_connection_may_be_blocked_time_and_again() -> None:
    """Each time that requests have to wait for the server, they are sent in the end."""
    records = [(b"k" * 100_000, b"v")]
    with Scripted(records, in_flight=20) as scripted:
        scripted.generator.begin(requests=60, now_ns=0)
        asked: list[Asked] = []
        for _ in range(10_000):
            asked += scripted.peer.asked()
            if len(asked) == 20:
                scripted.peer.send(b"".join(right(each, records) for each in asked))
                asked.clear()
            if not scripted.turn(1):
                break
        assert scripted.counted(*ACCOUNTED) == [60, 60, 0, 0]


def test_a_large_value_is_compared_to_its_last_byte() -> None:
    """A value over many receives must match completely."""
    value = bytes(range(256)) * 20_000
    for sent, wrong in ((value, 0), (value[:-1] + b"x", 1)):
        with Scripted([(b"k", value)]) as scripted:
            scripted.generator.begin(requests=1, now_ns=0)
            (asked,) = scripted.peer.asked()
            stream = answer(asked.message_id, [sent, "1"])
            for at in range(0, len(stream), 60_000):
                scripted.peer.send(stream[at : at + 60_000])
                scripted.turn(1)
            assert scripted.counted("answered", "wrong") == [1, wrong]


@pytest.mark.parametrize("wrong", [{"in_flight": 0}, {"batch": 0}, {"timeout_ms": 0}, {"sockets": []}])
def test_nothing_to_do_is_refused(wrong: dict[str, object]) -> None:
    """A generator needs a connection, a request, a key and a time; refused sockets stay with their owner."""
    ours, theirs = socket.socketpair()
    right_ones = {"sockets": [ours], "in_flight": 1, "batch": 1, "timeout_ms": 1, "seed": 1}
    with ours, theirs:
        with pytest.raises(ValueError, match="at least one"):
            Generator(RpcDialect("db", RECORDS), **(right_ones | wrong))
        assert ours.fileno() >= 0


@pytest.mark.parametrize("wrong", [{}, {"rate": -1, "requests": 1}, {"duration_ns": -1}])
def test_an_endless_run_is_refused(wrong: dict[str, int]) -> None:
    with Scripted() as scripted, pytest.raises(ValueError, match="a run needs"):
        scripted.generator.begin(**wrong)


def test_sockets_are_closed_with_the_generator() -> None:
    """The generator owns its sockets: peers see the end on close and on deletion."""
    for drop in (lambda generator: generator.close(), lambda generator: None):
        ours, theirs = socket.socketpair()
        generator = Generator(RpcDialect("db", RECORDS), [ours], in_flight=1, batch=1, timeout_ms=1, seed=1)
        drop(generator)
        del generator
        with theirs:
            assert theirs.recv(1) == b""


STALL_MS, PERIOD_MS, RATE = 100, 1000, 1000


def test_a_stall_of_all_connections_counts_all_the_same() -> None:
    """With one connection the requests of a stall are sent late, and their latency counts from the due time."""
    with Scripted() as scripted:
        scripted.generator.begin(rate=RATE, duration_ns=1000 * MS, now_ns=0)
        for now in range(1200):
            for _ in range(150):  # The number of turns allows for all requests that may wait.
                scripted.turn(now * MS)
                scripted.turn(now * MS)
                asked = scripted.peer.asked() if now >= STALL_MS else []
                if not asked:
                    break
                scripted.peer.send(right(asked[0]))
        exact = sorted(max(0, STALL_MS - now) for now in range(1000))
        found = scripted.generator.tally.histogram
        for share in (0.5, 0.95, 0.99, 1):
            assert found.quantile(share) == pytest.approx(exact[int(share * 1000) - 1] * MS, rel=1 / 31)
        assert scripted.generator.tally.lateness.maximum == pytest.approx(99 * MS)


def test_stages_of_a_rate_are_counted_apart() -> None:
    """A request belongs to the stage of its due time, whenever its answer comes."""
    with Scripted(connections=20) as scripted:
        scripted.generator.begin_stages(Schedule([(1000, 5 * MS), (2000, 5 * MS)]), now_ns=0)
        asked = []
        for now in range(2 * 10):
            scripted.turn(now * MS // 2)
            asked += [(peer, each) for peer in scripted.peers for each in peer.asked()]
        for peer, each in asked:
            peer.send(right(each))
        while scripted.turn(20 * MS):
            pass
        ledger = scripted.generator.ledger
        assert [ledger.tally_at(stage, 0).answered for stage in (0, 1)] == [5, 10]
        assert [ledger.tally_at(stage, 0).histogram.maximum for stage in (0, 1)] == [20 * MS, 15 * MS]


def test_targets_are_counted_apart() -> None:
    """Each connection uses the protocol of its target."""
    ends = [socket.socketpair() for _ in range(2)]
    dialects = [RpcDialect("db", RECORDS), RedisDialect(RECORDS)]
    generator = Generator(
        dialects, [ours for ours, _ in ends], in_flight=1, batch=1, timeout_ms=1000, seed=1, targets=[1, 0]
    )
    generator.begin(requests=2, now_ns=0)
    (_, redis), (_, node) = ends
    with redis, node:
        assert redis.recv(1000).startswith(b"*2\r\n$3\r\nGET")
        redis.sendall(b"-ERR no\r\n")
        node.sendall(right(Peer(node).asked()[0]))
        generator.step_at(1)
        assert generator.ledger.tally_at(0, 0).answered == 1
        assert generator.ledger.tally_at(0, 1).errors() == {"ERR": 1}
        generator.close()
