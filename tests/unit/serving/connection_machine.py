"""A state machine of the connection core, compared with the oracle's node.

A test drives several connections of one core. Each has a stream of requests, valid, invalid and damaged, which arrives
in arbitrary pieces; peers read little or nothing; Python answers in any order, twice, late, or to closed connections;
time passes; tables change. The limits are so low that every run meets them.
"""

import functools
import operator
import random
from collections import Counter
from typing import ClassVar

import msgpack
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gossipkv.serving.published import publish
from gossipkv.wire import rpc
from tests.oracle.connections import Limits, Node, pack
from tests.unit.serving.driven import Peer, make_core, make_version
from tests.world._world import Driver

LIMITS = {
    "max_frame": 300,
    "max_depth": 8,
    "max_elements": 40,
    "max_in_flight": 3,
    "max_in_flight_total": 5,
    "max_queued": 200,
    "max_held": 900,
    "max_connections": 4,
    "max_connections_per_address": 3,
    "frame_timeout_ms": 1000,
    "output_timeout_ms": 1500,
    "idle_timeout_ms": 5000,
}
OLD = {b"k": b"v" * 20, b"long": b"w" * 150, b"": b""}
ADDRESSES = [b"\x7f\0\0\1", b"\x7f\0\0\2"]
TABLES = [
    {b"db": (b"1", {b"1": OLD})},
    {b"db": (b"2", {b"1": OLD, b"2": {b"k": b"new"}})},
]

IDS = [0, 1, 2, 3, 4, 200, 70_000, 2**32 - 1]
PLAIN = [
    ("ping", []),
    ("get", ["db", b"k"]),
    ("get", ["db", "long", {"timeout_ms": 1}]),
    ("get", [b"db", b"none", {"version": "1"}]),
    ("get", ["db", b"k", {"explain": True}]),
    ("get_many", ["db", [b"k", b"", b"none"]]),
    ("get_many", ["db", [b"long"], {"min_version": "1"}]),
    ("scan", ["db", {"start": b"l", "version": "1"}]),
    ("scan", ["db", {"reverse": True, "end": b"l"}]),
]
HANDED_OFF = [
    ("info", []),
    ("ping", [1]),
    ("get", ["nowhere", b"k"]),
    ("get", ["db", b"k", {"version": "9"}]),
    ("get_many", ["db", [b"k"], {"explain": True}]),
    ("", [b"x" * 90]),
]
GOES_ON = [b"\xa1m\x80", b"\x05\x90", b"\xc0\xc0"]  # Behind an id: complete messages that are no requests.
REFUSED = [b"\xa1m\xc6\xff\xff\xff\xff", b"\xa1m\xdd\xff\xff\xff\xff", b"\xa1m" + b"\x91" * 8, b"\xa1m\x91\xc1"]
IGNORED = [rpc.notification("note", [1]), b"\x91\x02", rpc.notification("note", [b"x" * 70])]
HTTP = b"GET / HTTP/1.1\r\n\r\n"
RESP = b"*1\r\n$4\r\nPING\r\n"
FATAL = [rpc.response(1, None), rpc.response(2**32 - 1, [1]), b"\x90", b"\xc1", b"\x94\x00\xff\xa1m\x90", HTTP, RESP]


def make_stream(count, seed):
    """Return a stream of `count` messages; a fifth are invalid, and some of these have one byte changed."""
    draw = random.Random(seed)
    stream = b""
    for _ in range(count):
        msgid = draw.choice(IDS)
        match draw.randrange(60):
            case 0 | 9:
                message = draw.choice(FATAL)
            case 1 | 10 | 11:
                message = b"\x94\x00" + msgpack.packb(msgid) + draw.choice(REFUSED)
            case 2:
                message = bytearray(rpc.request(msgid, *draw.choice(PLAIN)))
                message[draw.randrange(len(message))] = draw.randrange(256)
            case 3 | 4 | 5:
                message = b"\x94\x00" + msgpack.packb(msgid) + draw.choice(GOES_ON)
            case 6 | 7 | 8:
                message = draw.choice(IGNORED)
            case number:
                message = rpc.request(msgid, *draw.choice(PLAIN if number % 2 else HANDED_OFF))
        stream += message
    return stream


STREAMS = st.builds(make_stream, st.integers(1, 8), st.integers(0, 2**32 - 1))


@functools.cache
def wording():
    """Return the core's messages by reason; the oracle decides about the codes."""

    def said(data, **limits):
        peer = Peer(make_core(max_frame=LIMITS["max_frame"], **limits))
        for _, msgid, _, _ in peer.send(data):
            peer.driver.reply(peer.handle, msgid, bytes(LIMITS["max_frame"] + 1))
        peer.take()
        return peer.answers()[0][2]

    def spoken(data):
        peer = Peer(make_core())
        assert peer.send(data) == []
        return [peer.received]

    return {
        "no request": said(b"\x92\x00\x01"),
        "frame": said(b"\x94\x00\x01\xc1"),
        "frame too large": said(b"\x94\x00\x01\xc6\xff\xff\xff\xff"),
        "id in flight": said(2 * rpc.request(1, "m", [])),
        "overloaded": said(rpc.request(1, "m", []) + rpc.request(2, "m", []), max_in_flight_total=1),
        "reply too large": said(rpc.request(1, "m", [])),
        "HTTP": spoken(HTTP),
        "RESP": spoken(RESP),
    }


class Real:
    """The core and its driver as far as the machine uses them; bugs are planted here."""

    tables = ()  # TABLES with files.

    def __init__(self):
        self.core = make_core(**self.limits())
        self.driver = Driver(self.core)
        self.publish(0)

    def limits(self):
        return LIMITS

    def publish(self, which):
        self.core.publish(self.tables[which].table())

    def open(self, now_ms, address):
        return self.driver.open(now_ms, address)

    def feed(self, handle, data, now_ms):
        return self.driver.feed(handle, data, now_ms)

    def run(self, now_ms):
        return self.driver.run(now_ms)

    def take_output(self, handle, limit, now_ms):
        return self.driver.take_output(handle, limit, now_ms)

    def reply(self, handle, msgid, frame):
        return self.driver.reply(handle, msgid, frame)

    def may_reply(self, handle):
        return self.driver.may_reply(handle)

    def drop(self, handle):
        self.driver.drop(handle)

    def end_input(self, handle):
        self.driver.end_input(handle)

    def close(self, handle):
        self.driver.close(handle)

    def expire(self, now_ms):
        self.driver.expire(now_ms)

    def state(self, handle):
        """Return whether a connection reads, and whether it should be closed."""
        return self.driver.wants_input(handle), self.driver.should_close(handle)

    def counters(self):
        return self.core.counters()


def use_tables(directory, monkeypatch):
    """Let cores of a test publish TABLES, whose files are written to `directory`."""
    versions = TABLES[1][b"db"][1].items()
    files = {name: make_version(directory, "db", name.decode(), records) for name, records in versions}
    tables = [
        publish([(files[name], name == active) for name in versions])
        for (active, versions) in (table[b"db"] for table in TABLES)
    ]
    monkeypatch.setattr(Real, "tables", tables)


class Connections(RuleBasedStateMachine):
    met: ClassVar = Counter()  # Events of all runs.

    def __init__(self):
        super().__init__()
        self.model = Node(TABLES[0], Limits(**LIMITS), wording(), now_ms=1)
        self.real = Real()
        self.live = []
        self.unsent = {}  # By handle: bytes that the peer has not sent yet.
        self.handed_off = []  # Handle and message id of all hand-offs so far.

    def pick(self, which, wanted=lambda connection: True):
        """Choose a connection, among the wanted ones if there are any."""
        found = [handle for handle in self.live if wanted(self.model.connections[handle])] or self.live
        return found[which % len(found)]

    def note(self, hand_offs):
        order = operator.itemgetter(0)  # Hand-offs are ordered within a connection; connections take turns.
        assert sorted(hand_offs, key=order) == sorted(self.model.take_hand_offs(), key=order)
        self.handed_off += [hand_off[:2] for hand_off in hand_offs]

    def deliver(self, handle, size):
        """Deliver the next bytes of a peer, if the node reads."""
        data, self.unsent[handle] = self.unsent[handle][:size], self.unsent[handle][size:]
        self.model.feed(handle, data)
        self.note(self.real.feed(handle, data, self.model.now_ms))

    @initialize()
    def begin(self):
        for address in ADDRESSES:
            self.open(address)

    @rule(address=st.sampled_from(ADDRESSES))
    def open(self, address):
        handle = self.real.open(self.model.now_ms, address)
        assert (handle is not None) is self.model.may_open(address)
        if handle is not None:
            assert handle not in self.unsent, "a handle is used once"
            self.model.open(handle, address)
            self.live.append(handle)
            self.unsent[handle] = b""

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 3), stream=STREAMS, share=st.sampled_from([1.0, 0.9, 0.5, 0.1]))
    def send(self, which, stream, share):
        handle = self.pick(which, lambda connection: connection.reads())
        self.unsent[handle] += stream
        if self.model.connections[handle].reads():
            self.deliver(handle, round(share * len(self.unsent[handle])))

    @precondition(lambda self: any(self.unsent[handle] for handle in self.live))
    @rule(which=st.integers(0, 3), sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12))
    def send_in_pieces(self, which, sizes):
        unsent = [handle for handle in self.live if self.unsent[handle]]
        handle = unsent[which % len(unsent)]
        for size in sizes:
            if self.model.connections[handle].reads():
                self.deliver(handle, size)

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 3), size=st.sampled_from([1, 10, 100, 10_000, 10_000]))
    def read(self, which, size):
        handle = self.pick(which, lambda connection: connection.output)
        expected = self.model.take_output(handle, size)
        assert self.real.take_output(handle, size, self.model.now_ms) == expected

    @precondition(lambda self: self.handed_off)
    @rule(which=st.integers(0, 5), old=st.booleans(), size=st.sampled_from([1, 1, 60, 250, 400]))
    def reply(self, which, old, size):
        """Reply to one of the latest or first hand-offs, whatever its state, unless its peer has too much to read."""
        self.answer(*self.handed_off[(which if old else -1 - which) % len(self.handed_off)], b"x" * size)

    def answer(self, handle, msgid, result):
        may = self.model.may_reply(handle)
        assert self.real.may_reply(handle) is may
        if may:
            frame = pack(msgid, None, result)
            expected = self.model.reply(handle, msgid, frame)
            assert self.real.reply(handle, msgid, frame) is expected

    @rule()
    def run(self):
        """Continue held-back requests where the limits allow."""
        self.model.run()
        self.note(self.real.run(self.model.now_ms))

    @rule(elapsed_ms=st.sampled_from([1, 400, 600, 1001, 1501, 4600, 5001]))
    def wait(self, elapsed_ms):
        self.model.now_ms += elapsed_ms
        self.model.each(lambda connection: connection.expire())
        self.real.expire(self.model.now_ms)

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 3), how=st.sampled_from(["end of input", "gone", "too much", "drain"]))
    def end(self, which, how):
        """End a peer's input, lose the transport, drop a connection for memory, or drain all."""
        for handle in tuple(self.live) if how == "drain" else [self.pick(which)]:
            if how == "gone":
                self.close(handle)
            elif how == "too much":
                self.model.connections[handle].doom("memory")
                self.real.drop(handle)
            else:
                self.model.connections[handle].finish("by_peer")
                self.real.end_input(handle)

    @rule()
    def close_what_is_over(self):
        for handle in [handle for handle in self.live if self.model.connections[handle].over()]:
            self.close(handle)

    @precondition(lambda self: self.live)
    @rule(count=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
    def traffic(self, count, seed):
        """Do the usual steps of connections for a while."""
        draw = random.Random(seed)
        for _ in range(count):
            which = draw.randrange(4)
            match draw.randrange(8):
                case 0 | 1:
                    self.send(which, make_stream(draw.randint(1, 6), draw.random()), draw.choice([1.0, 1.0, 0.7, 0.3]))
                case 2 if any(self.unsent[handle] for handle in self.live):
                    self.send_in_pieces(which, [draw.randint(1, 30) for _ in range(8)])
                case 3 | 4:
                    self.read(which, draw.choice([10, 100, 10_000]))
                case 5 | 6 if self.handed_off:
                    self.reply(draw.randrange(6), draw.random() < 0.1, draw.choice([1, 60, 250, 400]))
                case _:
                    self.run()
            self.both_agree()

    def close(self, handle):
        self.model.close(handle)
        self.real.close(handle)
        self.live.remove(handle)

    @rule(which=st.integers(0, 1))
    def publish(self, which):
        self.model.publish(TABLES[which])
        self.real.publish(which)

    @invariant()
    def both_agree(self):
        """Reading, closing and every counter agree."""
        for handle in self.live:
            connection = self.model.connections[handle]
            assert self.real.state(handle) == (connection.reads(), connection.over())
        assert {name: count for name, count in self.real.counters().items() if count} == self.model.counters()

    @invariant()
    def limits_hold(self):
        """No limit is exceeded in the model, and the sums agree."""
        assert self.model.held_bytes <= LIMITS["max_held"]
        assert len(self.live) <= LIMITS["max_connections"]
        for connection in self.model.connections.values():
            assert len(connection.in_flight) <= LIMITS["max_in_flight"]
            assert len(connection.output) < LIMITS["max_queued"] + LIMITS["max_frame"]

    def teardown(self):
        """Once all peers read and Python answers, each request has one answer and nothing is held."""
        for _ in range(1000):
            self.run()
            for handle, msgid in self.handed_off:
                if handle in self.live:
                    self.answer(handle, msgid, None)
            for which in range(len(self.live)):
                self.read(which, 10_000)
            if not (self.model.runnable or any(one.in_flight or one.output for one in self.model.connections.values())):
                break
        self.end(0, "drain") if self.live else None
        assert all(self.real.state(handle) == (False, True) for handle in self.live)
        for handle in tuple(self.live):
            self.close(handle)
        counters = self.real.counters()
        assert (counters["connections"], counters["in_flight"], counters["held_bytes"]) == (0, 0, 0)
        self.met.update(counters)
