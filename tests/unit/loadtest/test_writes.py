"""Loads that write, played turn by turn: what a server may answer afterwards, and planted faults that must be found."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.address import parse_address
from gossipkv.loadtest._loadtest import HttpDialect, KeyChooser, RedisDialect, RpcDialect, Writes
from gossipkv.loadtest.load_child import chooser, own_keys
from gossipkv.loadtest.plan import KINDS, Kind, LoadPlan, LoadTarget
from gossipkv.loadtest.truth import key_of, made_records
from tests.oracle import load_writes as oracle
from tests.unit.loadtest.scripted import MS, Scripted

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from gossipkv.loadtest._loadtest import Dialect

COUNT = 3
KEYS = [key_of(number) for number in range(COUNT)]
RECORDS = [(key, ...) for key in KEYS]
APART_NS = 100 * MS  # Further apart than clocks are trusted.
FIRST = KEYS[0]


class TableServer:
    """A table of one copy that a test makes forget, go back or invent, asked by a load of one key at a time."""

    def __init__(self, kind: Kind, *, sessions: int = 0, keys: int = 1, ours: bool = True, ttl_ms: int = 0) -> None:
        self.writes = Writes(COUNT, run=7, sizes=(16, 40), sessions=sessions, ours=ours, ttl_ms=ttl_ms)
        self.rows: dict[bytes, bytes] = {}
        self.tokens: list[bytes | None] = []
        self.now = APART_NS
        self._scripted = Scripted(
            dialect=RpcDialect("db", RECORDS, writes=self.writes),
            mix=[kind == each for each in KINDS],
            chooser=KeyChooser("sequential", keys, seed=1, new=COUNT - keys),
            writes=self.writes,
            walk=2,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exit_: object) -> None:
        self._scripted.__exit__(*exit_)

    def asked(self) -> list[object]:
        peer = self._scripted.peer
        peer.unpacker.feed(peer.socket.recv(1 << 16, socket.MSG_DONTWAIT))
        (message,) = peer.unpacker
        return message

    def answer(self, message: list[object], result: object, error: object = None) -> None:
        self._scripted.peer.send(msgpack.packb([1, message[1], error, result]))
        self.now += APART_NS
        self._scripted.turn(self.now)

    def serve(self) -> None:
        message = self.asked()
        method, parameters = message[2], message[3]
        key, options = parameters[1], parameters[-1] if isinstance(parameters[-1], dict) else {}
        self.tokens.append(options.get("token"))
        token = b"t%d" % len(self.tokens)
        if method == "put":
            self.rows[key] = parameters[2]
        elif method == "put_many":
            self.rows.update(key)
        elif method == "delete":
            self.rows.pop(key, None)
        if method == "get_many":
            self.answer(message, [[*map(self.rows.get, key)], token])
        elif method == "get":
            self.answer(message, [self.rows.get(key), token])
        elif method == "scan":
            found = [row for row in sorted(self.rows.items()) if row[0] >= key["start"]]
            self.answer(message, [found[: key["limit"]], None, token])
        else:
            self.answer(message, token)

    def run(self, messages: int = 1) -> None:
        """Play one request, of so many messages, long after the one before."""
        self.now += APART_NS
        self._scripted.generator.begin(requests=1, now_ns=self.now)
        self.play(messages)

    def play(self, messages: int) -> None:
        for _ in range(messages):
            self.serve()

    def check(self, *, tells_lost: bool = True) -> None:
        """Read what was acknowledged, as at the end of a load."""
        self.writes.begin_final(tells_lost=tells_lost)
        if left := self.writes.unconfirmed():
            self._scripted.generator.begin_walk(left, now_ns=self.now)
            self.play(-(-len(left) // 2))

    def begin(self) -> list[object]:
        self._scripted.generator.begin(requests=1, now_ns=self.now)
        return self.asked()

    @property
    def wrong(self) -> int:
        return self._scripted.generator.tally.wrong

    @property
    def fault(self) -> str | None:
        found = self.writes.first_fault()
        return None if found is None else found[0]


def test_what_was_written_last_is_right() -> None:
    """The last of three acknowledged writes is read at the end, and each value is of its own write."""
    with TableServer("put") as server:
        for _ in range(3):
            server.run()
        assert server.rows == {FIRST: server.writes.value(0, 3)}
        server.check()
        assert (server.wrong, server.fault, server.writes.unconfirmed()) == (0, None, [])


def test_a_lost_write_is_found() -> None:
    """A server that comes back with the write before the acknowledged one fails the load; so does one with nothing."""
    for left in ([(FIRST, 1)], []):
        with TableServer("put") as server:
            server.run()
            server.run()
            server.rows = {key: server.writes.value(0, write) for key, write in left}
            server.check(tells_lost=False)
            assert (server.wrong, server.writes.unconfirmed()) == (0, [0])  # Replicas have some time.
            server.check()
            assert (server.wrong, server.fault) == (1, "lost_write")


def test_a_lost_delete_is_found() -> None:
    """A key that comes back after its acknowledged delete fails the load."""
    for back in (False, True):
        with TableServer("delete") as server:
            server.run()
            if back:
                server.rows = {FIRST: Writes(COUNT, run=8).value(0, 1)}
            server.check()
            assert (server.wrong, server.fault) == (back, "lost_write" if back else None)


def test_an_unknown_write_may_be_there_or_not() -> None:
    """After an error the write is found or not, even instead of a later one that was acknowledged."""
    for late in (False, True):
        with TableServer("put") as server:
            server.answer(server.begin(), None, ["UNKNOWN", "", None])
            server.run()
            if late:
                server.rows = {FIRST: server.writes.value(0, 1)}
            server.check()
            assert (server.wrong, server.writes.unconfirmed()) == (0, [])


@pytest.mark.parametrize("kind", ["get", "get_many", "scan", "read_modify_write"])
def test_a_value_never_written_is_found(kind: Kind) -> None:
    """A write that was not begun, another key's value, and bytes of no load are wrong however they are read."""
    other = Writes(COUNT, run=8)
    for value, faults in (
        (Writes(COUNT, run=7, sizes=(16, 40)).value(0, 5), 1),
        (other.value(1, 1), 1),
        (other.value(0, 1)[:-1] + b"?", 1),
        (b"", 1),
        (other.value(0, 1), 0),  # An earlier load test wrote this.
    ):
        with TableServer(kind) as server:
            server.rows[FIRST] = value
            server.run(2 if kind == "read_modify_write" else 1)
            assert server.wrong == faults, value


def test_a_session_does_not_go_back() -> None:
    """A user who has read write 2 must not read write 1; without sessions that is no fault before the end."""
    for sessions, wrong in ((1, 1), (0, 0)):
        with TableServer("read_modify_write", sessions=sessions) as server:
            for _ in range(2):
                server.run(2)
            server.rows = {FIRST: server.writes.value(0, 1)}
            server.run(2)
            assert (server.wrong, server.fault) == (wrong, "went_back" if wrong else None)


def test_each_user_shows_the_last_token() -> None:
    """Two users take turns, and each shows what it was told last."""
    with TableServer("put", sessions=2) as server:
        for _ in range(4):
            server.run()
        assert server.tokens == [None, None, b"t1", b"t2"]


def test_writes_at_the_same_time_may_come_in_any_order() -> None:
    """Two writes that overlap, or follow within the clocks' trust, may each be the last."""
    for first in (1, 2):
        with TableServer("put") as server:
            for _ in range(2):
                message = server.begin()
                server.now -= APART_NS - MS
                server.answer(message, b"")
            server.rows = {FIRST: server.writes.value(0, first)}
            server.check()
            assert server.wrong == 0


@given(st.integers(0, 2**64 - 1), st.integers(0, COUNT - 1), st.integers(0, 2**32 - 1), st.integers(16, 70))
def test_values_are_those_of_the_oracle(run: int, key: int, write: int, least: int) -> None:
    sizes = (least, 2 * least)
    assert Writes(COUNT, run=run, sizes=sizes).value(key, write) == oracle.value(run, key, write, sizes)


GAPS = st.lists(st.tuples(st.sampled_from([1, 19, 20, 100]), st.sampled_from([1, 19, 20]), st.booleans()), max_size=5)


@given(GAPS, st.integers(0, 5))
def test_the_last_write_is_one_of_the_oracle(plays: list[tuple[int, int, bool]], read: int) -> None:
    """No write that may be the last is told as lost; every other one is, where writes are apart."""
    read %= len(plays) + 1
    done = []
    with TableServer("put") as server:
        for pause_ms, took_ms, is_done in plays:
            server.now += pause_ms * MS
            message = server.begin()
            server.now += took_ms * MS - APART_NS
            server.answer(message, b"", None if is_done else ["TIMEOUT"])
            done.append(oracle.Write(server.now // MS - took_ms, server.now // MS, is_done))
        server.rows = {FIRST: server.writes.value(0, read)} if read else {}
        server.check()
        is_sharp = all(pause_ms >= oracle.APART_MS for pause_ms, _, _ in plays)
        may_be = oracle.may_be_last(done, read)
        assert not server.wrong or not may_be
        assert may_be or server.wrong or not is_sharp


def test_inserted_keys_are_new_and_read_at_the_end() -> None:
    """Each insert takes the next key, and all are checked, two with a request."""
    with TableServer("insert") as server:
        for _ in range(2):
            server.run()
        assert server.rows == {KEYS[1]: server.writes.value(1, 1), KEYS[2]: server.writes.value(2, 1)}
        server.check()
        assert (server.wrong, server.writes.unconfirmed()) == (0, [])


@pytest.mark.parametrize(("ttl_ms", "may_be_absent"), [(0, False), (1500, True), (3600_000, False)])
def test_a_record_whose_lifetime_may_be_over_may_be_absent(ttl_ms: int, may_be_absent: bool) -> None:
    """It may then be absent in a session and at the end; but an earlier value is wrong: it would expire before."""
    with TableServer("read_modify_write", sessions=1, ttl_ms=ttl_ms) as server:
        for _ in range(3):
            server.run(2)
        server.rows.clear()
        server.run(2)
        assert server.wrong == (0 if may_be_absent else 1)
        server.rows.clear()
        server.check()
        assert (server.wrong, server.writes.unconfirmed()) == (0 if may_be_absent else 1, [] if may_be_absent else [0])
        server.rows = {FIRST: server.writes.value(0, 1)}
        server.run(2)
        assert server.wrong == 1


@pytest.mark.parametrize(("dialect", "kind", "told"), [
    (lambda **given: RpcDialect("db", RECORDS, **given), "put", b"\xa6ttl_ms\xcd\x05\xdc"),
    (lambda **given: RpcDialect("db", RECORDS, **given), "put_many", b"\xa6ttl_ms\xcd\x05\xdc"),
    (lambda **given: RpcDialect("db", RECORDS, **given), "delete", None),
    (lambda **given: HttpDialect("db", "h", RECORDS, **given), "put", b"\r\nGossipKV-TTL: 2\r\n"),
    (lambda **given: HttpDialect("db", "h", RECORDS, **given), "put_many", b"\r\nGossipKV-TTL: 2\r\n"),
    (lambda **given: HttpDialect("db", "h", RECORDS, **given), "delete", None),
    (lambda **given: RedisDialect(RECORDS, **given), "put", b"\r\n$2\r\nPX\r\n$4\r\n1500\r\n"),
    (lambda **given: RedisDialect(RECORDS, **given), "put_many", None),
])  # fmt: skip
def test_puts_tell_the_lifetime(dialect: Callable[..., Dialect], kind: str, told: bytes | None) -> None:
    """HTTP has whole seconds, and Redis's MSET none."""
    writes = Writes(COUNT, run=7)
    mix = [kind == each for each in KINDS]
    chooser_ = KeyChooser("sequential", 1, seed=1)
    with Scripted(dialect=dialect(writes=writes, ttl_ms=1500), mix=mix, chooser=chooser_, writes=writes) as scripted:
        scripted.generator.begin(requests=1, now_ns=0)
        asked = scripted.peer.socket.recv(1 << 16)
    assert told in asked if told is not None else b"ttl" not in asked.lower() and b"PX" not in asked
    if kind == "put" and asked.startswith(b"*"):
        assert asked.startswith(b"*5\r\n$3\r\nSET\r\n")


def test_redis_and_http_write_the_same_values() -> None:
    """SET and PUT carry the value of the write, and HTTP shows the session's token again."""
    for kind, dialect, answer in (
        ("put", lambda writes: RedisDialect(RECORDS, writes=writes), b"+OK\r\n"),
        ("put_many", lambda writes: RedisDialect(RECORDS, writes=writes), b"+OK\r\n"),
        ("delete", lambda writes: RedisDialect(RECORDS, writes=writes), b":1\r\n"),
        ("put", lambda writes: HttpDialect("db", "h", RECORDS, writes=writes, level="all"),
         b"HTTP/1.1 204 No Content\r\nGossipKV-Token: QUJD\r\n\r\n"),
        ("put_many", lambda writes: HttpDialect("db", "h", RECORDS, writes=writes),
         b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nGossipKV-Token: QUJD\r\n\r\n"),
        ("delete", lambda writes: HttpDialect("db", "h", RECORDS, writes=writes),
         b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nGossipKV-Token: QUJD\r\n\r\n"),
    ):  # fmt: skip
        writes = Writes(COUNT, run=7, sessions=1)
        mix = [kind == each for each in KINDS]
        with Scripted(
            dialect=dialect(writes), mix=mix, chooser=KeyChooser("sequential", 1, seed=1), writes=writes
        ) as scripted:
            scripted.generator.begin(requests=2, now_ns=0)
            for write in (1, 2):
                asked = scripted.peer.socket.recv(1 << 16)
                assert kind == "delete" or writes.value(0, write) in asked
                assert (b"GossipKV-Token: QUJD\r\n" in asked) == (write == 2 and b"HTTP" in answer)
                scripted.peer.send(answer)
                scripted.turn(write)
            assert scripted.counted("answered", "wrong", "refused") == [2, 0, 0]


def test_redis_and_http_find_what_was_never_written() -> None:
    for dialect, answer in (
        (lambda writes: RedisDialect(RECORDS, writes=writes), b"$3\r\nodd\r\n"),
        (lambda writes: HttpDialect("db", "h", RECORDS, writes=writes),
         b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nodd"),
    ):  # fmt: skip
        writes = Writes(COUNT, run=7, ours=True)
        with Scripted(dialect=dialect(writes), writes=writes) as scripted:
            scripted.generator.begin(requests=1, now_ns=0)
            scripted.peer.send(answer)
            scripted.turn(1)
            assert scripted.counted("answered", "wrong") == [1, 1]
            assert writes.first_fault()[0] == "never_written"


@given(st.integers(1, 200), st.integers(1, 5), st.booleans())
def test_processes_share_no_key(records: int, processes: int, inserts: bool) -> None:
    """Each key of a load that writes belongs to one process, and all are covered."""
    target = LoadTarget("gossipkv", parse_address("h:1"))
    plan = LoadPlan(
        targets=(target,), database="d", records=max(records, processes), processes=processes, connections=5,
        mix={"put": 1, "insert": 1} if inserts else {"put": 1},
    )  # fmt: skip
    truth = made_records(plan)
    parts = [own_keys(plan, truth, turn) for turn in range(processes)]
    assert sorted(number for part in parts for number in part) == [*range(len(truth.keys))]
    drawn = chooser(plan, truth, 0).draws(20)
    assert all(number in parts[0] and number < truth.present for number in drawn)


def test_the_latest_are_the_newest() -> None:
    """Keys by age: the newest is the most frequent, and no place is out of range."""
    drawn = KeyChooser("latest", 100, seed=1, new=50).draws(5000)
    assert max(set(drawn), key=drawn.count) == 99
    assert all(0 <= place < 150 for place in drawn)
