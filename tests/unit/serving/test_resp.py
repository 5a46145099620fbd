"""RESP in the core, compared with a slow oracle: cut anywhere, mutated, answered in any order."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossipkv.serving.published import publish
from gossipkv.serving.resp_words import RespLine, RespRefusal, say
from gossipkv.wire import rpc
from tests.oracle.resp import Connection, Error
from tests.unit.serving.driven import LIMITS, make_core, make_version
from tests.world._world import Driver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.serving._serving import Core
    from gossipkv.wire.rpc import Value

RECORDS = {
    b"db": {b"k": b"v", b"long": b"x" * 3000, b"empty": b"", b"": b"no key", b"a:b": b"colon"},
    b"other": {b"k": b"w", b"\r\n": b"\r\n"},
}
DATABASES = {name: records.get for name, records in RECORDS.items()} | {b"carts": lambda key: key * 2 or None}
SELECTABLE = ("db", "carts")
NOW_MS = 1_800_000_000_000
EXPIRES_MS = NOW_MS + 61_501


def array(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def result_of(method: bytes, params: Sequence[object]) -> object:
    """Return the result of a request, from the core or from Python."""
    match method, params:
        case b"get", [bytes(database), bytes(key), *explains] if database in DATABASES:
            expiry = {"expires_at": EXPIRES_MS} if database == b"carts" and key > b"a" else {}
            return [DATABASES[database](key), "v1", *({"node": "n1"} | expiry for _ in explains)]
        case b"get_many", [bytes(database), list(keys)] if database in DATABASES:
            return [[DATABASES[database](key) for key in keys], "v1"]
        case b"put", [b"carts", _, _, {**options}]:
            return Error("OPTIONS", f"{options}")
        case b"put" | b"delete", [b"carts", *_]:
            return b"token"
        case b"resp", [*_, protocol, database, name, list(words), _]:
            return b"+%d %d %s %s\r\n" % (protocol, database, name, b" ".join(words).hex().encode())
    return Error("UNKNOWN_DATABASE", "no such database")


class Talk:
    """A client, and Python that answers hand-offs in random order."""

    def __init__(self, core: Core, seed: int = 0) -> None:
        self._driver = Driver(core)
        handle = self._driver.open(1, listener=1)
        assert handle is not None
        self.handle = handle
        self._waiting: list[tuple[int, int, bytes, bytes]] = []
        self._random = random.Random(seed)
        self.received = b""
        self.asked = 0

    def send(self, data: bytes) -> None:
        """Send bytes; continue held requests before."""
        while not self._driver.wants_input(self.handle) and not self.ends:
            self.go_on()
        if not self.ends:
            self._waiting += self._driver.feed(self.handle, data, 1)

    def go_on(self) -> None:
        """Answer a random hand-off or none; read all output."""
        self._waiting += self._driver.run(1)
        if self._waiting and self._random.random() < 0.7:
            _, msgid, method, params = self._waiting.pop(self._random.randrange(len(self._waiting)))
            self.asked += 1
            result = result_of(method, msgpack.unpackb(params, raw=True))
            told: Value = [1, msgid, [*result, {}], None] if isinstance(result, Error) else [1, msgid, None, result]
            assert self._driver.reply(self.handle, msgid, msgpack.packb(told))
        self.received += self._driver.take_output(self.handle, 1 << 30, 1)

    @property
    def ends(self) -> bool:
        """True if the connection should be closed."""
        return self._driver.should_close(self.handle)

    def close(self) -> None:
        self._driver.close(self.handle)

    def finish(self) -> bytes:
        for _ in range(10_000):
            self.go_on()
            if not self._waiting and not self._driver.has_work:
                break
        self.received += self._driver.take_output(self.handle, 1 << 30, 1)
        return self.received


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    directory = tmp_path_factory.mktemp("resp")
    versions = [make_version(directory, name.decode(), "v1", records) for name, records in RECORDS.items()]
    return publish((version, True) for version in versions)


def make(published, **limits: int) -> Core:
    core = make_core(**limits, resp_databases=SELECTABLE)
    core.expire_from(NOW_MS, 0)
    core.publish(published.table())
    return core


def expected(data: bytes, max_frame: int = LIMITS["max_frame"]) -> tuple[bytes, bool]:
    """Return the oracle's answers, and whether the connection ends."""
    selectable = [name.encode() for name in SELECTABLE]
    oracle = Connection(result_of, selectable, max_frame, NOW_MS)
    return oracle.answers(data), oracle.ended


KEYS = [
    b"k",
    b"long",
    b"empty",
    b"",
    b"a:b",
    b"gone",
    b"db:k",
    b"other:k",
    b"db:long",
    b"carts:a",
    b"nodb:k",
    b"other:\r\n",
]
NAMES = [
    b"GET", b"get", b"MGET", b"EXISTS", b"STRLEN", b"GETRANGE", b"SUBSTR", b"TYPE", b"TTL", b"EXPIRE", b"SET", b"MSET",
    b"PTTL", b"DEL", b"UNLINK", b"PING", b"ECHO", b"SELECT", b"HELLO", b"RESET", b"AUTH", b"CLIENT", b"INFO", b"lpush",
    b"MULTI", b"EXEC", b"DISCARD", b"WATCH", b"UNWATCH",
]  # fmt: skip
OTHERS = [b"0", b"1", b"2", b"3", b"-1", b"4", b"SETNAME", b"AUTH", b"99999999999999999999", b"x y", b"me"]
words = st.lists(st.sampled_from(KEYS + OTHERS) | st.binary(max_size=4), max_size=5)
key = st.sampled_from([b"db:k", b"db:long", b"db:gone", b"other:k", b"carts:a", b"k", b"a:b"])
number = st.sampled_from([b"0", b"1", b"-1", b"02", b"-3000", b"4000", b"4398046512", b"4398046511104", b"1000000000"])
commands = st.one_of(
    st.tuples(st.sampled_from([b"GET", b"STRLEN", b"TYPE", b"TTL", b"EXPIRETIME", b"EXISTS"]), key),
    st.tuples(st.sampled_from([b"MGET", b"EXISTS", b"DEL"]), key, key, key),
    st.tuples(st.just(b"GETRANGE"), key, number, number),
    st.tuples(st.just(b"SET"), key, number, st.sampled_from([b"EX", b"px", b"EXAT", b"PXAT", b"KEEPTTL"]), number),
    st.tuples(st.sampled_from([b"EXPIRE", b"SETEX", b"PSETEX", b"PERSIST"]), key, number, number),
    st.tuples(st.sampled_from([b"SELECT", b"HELLO"]), st.sampled_from([b"0", b"1", b"2", b"3"])),
    st.tuples(st.sampled_from([b"SET", b"MSET"]), key, st.binary(max_size=3)),
    st.tuples(st.sampled_from([b"PING", b"RESET", b"INFO"])),
    st.tuples(st.sampled_from([b"MULTI", b"MULTI", b"EXEC", b"DISCARD"])),
    st.builds(lambda name, rest: (name, *rest), st.sampled_from(NAMES), words),
)


def quoted(word: bytes) -> bytes:
    return b'"' + b"".join(b"\\x%02x" % byte for byte in word) + b'"'


def line(command: Sequence[bytes]) -> bytes:
    return b" ".join([command[0], *map(quoted, command[1:])]) + b"\r\n"


streams = st.lists(
    st.builds(lambda form, command: form(command), st.sampled_from([lambda one: array(*one), line]), commands)
)
cuts = st.lists(st.integers(1, 40), max_size=30)


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    cut = []
    for size in sizes:
        cut.append(data[:size])
        data = data[size:]
    return [piece for piece in [*cut, data] if piece]


@given(st.lists(streams, max_size=3), cuts, st.integers(0, 100))
@example([[array(b"GET", b"db:gone"), array(b"HELLO", b"3"), array(b"GET", b"db:gone")]], [], 0)
@example([[array(b"MGET", b"db:k", b"other:k", b"db:gone")]], [], 0)
@example(
    [
        [
            array(b"GET", b"carts:a"),
            array(b"GET", b"db:k"),
            array(b"ECHO", b"x"),
            line([b"HELLO", b"3"]),
            array(b"GET", b"db:no"),
        ]
    ],
    [],
    0,
)
def test_commands_are_answered_in_order(published, parts, sizes, seed):
    """Every command of a pipeline is answered in order, however it is written, cut and answered by Python."""
    data = b"".join(piece for part in parts for piece in part)
    talk = Talk(make(published), seed)
    for piece in pieces(data, sizes):
        talk.send(piece)
    assert talk.finish() == expected(data)[0]


WORDS_IN_MULTI = [
    (b"GET", b"db:k"), (b"MGET", b"db:k", b"carts:a"), (b"SET", b"carts:a", b"1"), (b"SET", b"carts:a", b"1", b"XX"),
    (b"MSET", b"carts:a", b"1"), (b"DEL", b"carts:a"), (b"EXPIRE", b"carts:a", b"1"), (b"INFO",), (b"lpush", b"a"),
    (b"WATCH", b"carts:a"), (b"UNWATCH",), (b"SELECT", b"1"), (b"HELLO", b"3"), (b"AUTH", b"t"), (b"PING",),
]  # fmt: skip


@pytest.mark.parametrize("end", [(b"EXEC",), (b"DISCARD",), (b"RESET",)])
@pytest.mark.parametrize("size", [1, 1 << 16])
def test_nothing_is_done_between_multi_and_its_end(published, end, size):
    """Each command is refused, and the core asks for nothing; behind the end commands are done again."""
    data = b"".join(array(*words) for words in [(b"MULTI",), *WORDS_IN_MULTI, (b"MULTI",), end])
    talk = Talk(make(published))
    for at in range(0, len(data), size):
        talk.send(data[at : at + size])
    said = talk.finish()
    assert said == expected(data)[0]
    assert said.count(b"-ERR transactions are not supported") == len(WORDS_IN_MULTI)
    assert talk.asked == 0
    talk.send(array(b"SET", b"carts:a", b"1") + array(b"GET", b"db:k") + array(b"EXEC") + array(b"DISCARD"))
    assert talk.finish()[len(said) :] == b"+OK\r\n$1\r\nv\r\n-ERR EXEC without MULTI\r\n-ERR DISCARD without MULTI\r\n"


def test_a_command_is_the_same_wherever_it_is_cut(published):
    """The stream is cut in two at each byte, and into single bytes."""
    data = (
        array(b"MGET", b"db:k", b"other:k") + line([b"GETRANGE", b"db:long", b"0", b"3"]) + array(b"GET", b"db:k") * 2
    )
    whole = expected(data)[0]
    for cut in range(1, len(data)):
        talk = Talk(make(published))
        talk.send(data[:cut])
        talk.send(data[cut:])
        assert talk.finish() == whole, cut
    talk = Talk(make(published))
    for at in range(len(data)):
        talk.send(data[at : at + 1])
    assert talk.finish() == whole


@pytest.mark.parametrize(("name", "lifetime"), [
    (b"TTL", 62), (b"pttl", 61_501), (b"EXPIRETIME", EXPIRES_MS // 1000 + 1), (b"PEXPIRETIME", EXPIRES_MS),
])  # fmt: skip
def test_a_lifetime_is_rounded_to_its_unit(published, name, lifetime):
    """A record that never expires has -1, and an absent one -2."""
    talk = Talk(make(published))
    talk.send(b"".join(array(name, key) for key in (b"carts:b", b"carts:a", b"carts:", b"db:k", b"db:no")))
    assert talk.finish() == b":%d\r\n:-1\r\n:-2\r\n:-1\r\n:-2\r\n" % lifetime


@pytest.mark.parametrize("name", [b"MGET", b"EXISTS"])
@pytest.mark.parametrize("count", [2, 1_100, 16_001, 33_000])
def test_reads_have_any_number_of_keys(published, name, count):
    """Keys of several databases, in turns, are answered in their order; so are more keys than Python takes at once."""
    keys = [(b"db:k", b"carts:%d" % number, b"other:k", b"carts:")[number % 4] for number in range(count)]
    for words in (keys, [b"carts:%d" % number for number in range(count)], [b"db:k", b"db:no"] * (count // 2)):
        data = array(name, *words)
        talk = Talk(make(published))
        talk.send(data)
        assert talk.finish() == expected(data)[0]


def test_reads_have_keys_of_64_databases(published):
    for count, refused in ((64, False), (65, True)):
        data = array(b"MGET", *(b"carts:a" if number == 0 else b"no%d:a" % number for number in range(count)))
        talk = Talk(make(published))
        talk.send(data)
        assert talk.finish() == expected(data)[0]
        assert (b"more than 64 databases" in talk.received) is refused


@pytest.mark.parametrize(
    "first", [(b"SET", b"carts:a", b"1"), (b"DEL", b"carts:a"), (b"SETEX", b"carts:a", b"9", b"1")]
)
@pytest.mark.parametrize("second", [(b"SET", b"carts:a", b"2"), (b"UNLINK", b"carts:a")])
def test_writes_of_one_key_happen_in_their_order(published, first, second):
    """Another node may take each at another time; writes of other keys wait for none."""
    driver = Driver(make(published))
    handle = driver.open(1, listener=1)
    other = [array(b"SET", b"carts:%d" % number, b"1") for number in range(50)]
    waiting = driver.feed(handle, array(*first) + b"".join(other) + array(*second) + array(b"PING"), 1)
    assert len(waiting) == 51
    for _, msgid, _, _ in reversed(waiting):
        assert not driver.run(1)
        driver.reply(handle, msgid, rpc.response(msgid, b"token"))
    driver.take_output(handle, 1 << 20, 1)
    ((_, msgid, _, params),) = driver.run(1)
    assert msgpack.unpackb(params)[:2] == [b"carts", b"a"]
    driver.reply(handle, msgid, rpc.response(msgid, b"token"))
    said = driver.take_output(handle, 1 << 20, 1)
    driver.run(1)
    assert (said + driver.take_output(handle, 1 << 20, 1)).endswith((b"+OK\r\n+PONG\r\n", b":1\r\n+PONG\r\n"))
    driver.close(handle)


def test_a_write_of_many_keys_is_one_request(published):
    """It waits for the commands before it, and those behind it wait, so that all happen in their order."""
    words = [word for number in range(5_000) for word in (b"carts:%d" % number, b"v")]
    data = array(b"SET", b"carts:a", b"1") + array(b"MSET", *words) + array(b"SET", b"carts:a", b"2")
    driver = Driver(make(published))
    handle = driver.open(1, listener=1)
    waiting = driver.feed(handle, data, 1)
    for method in (b"put", b"resp", b"put"):
        ((_, msgid, asked, params),) = waiting
        assert asked == method
        if method == b"resp":
            assert msgpack.unpackb(params)[4] == [b"MSET", *words]
        driver.reply(handle, msgid, rpc.response(msgid, b"+OK\r\n" if method == b"resp" else b"token"))
        waiting = driver.run(1)
    assert driver.take_output(handle, 1 << 20, 1) == b"+OK\r\n" * 3
    driver.close(handle)


mutations = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        st.sampled_from(["insert", "delete", "change"]),
        st.sampled_from(b"\r\n*$-0129 \"'\\x\x00\xff"),
    ),
    min_size=1,
    max_size=4,
)


@given(st.lists(streams, min_size=1, max_size=2), mutations, cuts, st.integers(0, 100))
@example([[b'ECHO "a']], [(0, "change", 0x45)], [], 0)
def test_what_is_broken_is_told_once(published, parts, changes, sizes, seed):
    """Complete commands are answered, then the first broken one gets an error."""
    data = bytearray(b"".join(piece for part in parts for piece in part))
    for at, how, byte in changes:
        place = at % (len(data) + 1)
        if how == "insert":
            data.insert(place, byte)
        elif how == "delete":
            del data[place : place + 1]
        else:
            data[place : place + 1] = bytes([byte])
    stream = b"PING\r\n" + bytes(data)  # A stream that begins in another protocol is answered in that protocol.
    talk = Talk(make(published), seed)
    for piece in pieces(stream, sizes):
        talk.send(piece)
    said, ended = expected(stream)
    assert talk.finish() == said
    assert talk.ends is ended


# Limits -----------------------------------------------------------------------------------------------------------


def told(core: Core, data: bytes, pieces_of: int = 1 << 16) -> tuple[bytes, bool]:
    """Return the answers, and whether the connection ends."""
    talk = Talk(core)
    for at in range(0, len(data), pieces_of):
        talk.send(data[at : at + pieces_of])
    said, ends = talk.finish(), talk.ends
    talk.close()
    return said, ends


@pytest.mark.parametrize(
    ("data", "said", "counter"),
    [
        (b"*9223372036854775808\r\n", b"invalid multibulk length", "frames_too_many_elements"),
        (b"*2147483648\r\n", b"larger than max_frame, which is 1048576 bytes", "frames_too_large"),
        (b"*" + b"0" * 40, b"invalid multibulk length", "frames_too_many_elements"),
        (b"*1\r\n$9223372036854775807\r\n", b"invalid bulk length", "frames_too_large"),
        (b"*1\r\n$1048577\r\n", b"larger than max_frame, which is 1048576 bytes", "frames_too_large"),
        (b"*1\r\n$-1\r\n", b"invalid bulk length", "frames_too_large"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n", b"expected '$': a command is an array of strings", "frames_malformed"),
        (
            b"*2\r\n$600000\r\n%s\r\n$600000\r\n" % (b"x" * 600_000),
            b"larger than max_frame, which is 1",
            "frames_too_large",
        ),
        (b"x" * 70_000, b"too big inline request", "frames_too_large"),
        (b"GET 'a\r\n", b"unbalanced quotes in request", "frames_malformed"),
    ],
)
def test_what_no_command_can_be(published, data, said, counter):
    """One error comes after the answers to earlier commands, and then the connection ends."""
    core = make(published, max_elements=1 << 14)
    answer, ends = told(core, b"PING\r\n" + data + b"PING\r\n")
    assert answer.startswith(b"+PONG\r\n-ERR Protocol error: ")
    assert said in answer
    assert answer.count(b"\r\n") == 2
    assert ends
    assert core.counters()[counter] == 1
    assert core.counters()["held_bytes"] == 0


def test_what_is_no_command_and_does_no_harm(published):
    """Empty lines and empty arrays are ignored, as by Redis; commands may be in either case."""
    data = b"\r\n\n*0\r\n*-1\r\n  \r\npInG\r\n*1\r\n$4\r\nping\r\n"
    assert told(make(published), data) == (b"+PONG\r\n" * 2, False)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_other_protocols_are_told_what_speaks_here(published, size):
    """HTTP and MessagePack-RPC clients get one sentence that their programs show, unless commands came first."""
    http = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    answer, ends = told(make(published), http, size)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.endswith(b"\r\n\r\nThis port of a GossipKV node speaks RESP, as Redis does, not HTTP.\r\n")
    assert ends
    core = make(published)
    answer, ends = told(core, rpc.request(7, "ping", []))
    assert answer.startswith(b"\x94\x01\x07")
    words = "this port of the node speaks RESP, as Redis does, not MessagePack-RPC: use that of `listen`"
    assert msgpack.unpackb(answer) == [1, 7, ["BAD_REQUEST", words, {}], None]
    assert ends
    assert core.counters()["closed_bad_message"] == 1
    answer, ends = told(make(published), b"PING\r\n" + http, size)
    assert answer.startswith(b"+PONG\r\n-ERR wrong number of arguments for 'get' command\r\n")
    assert not ends


def test_a_command_that_never_ends(published):
    """The command has the time of a frame."""
    core = make(published)
    driver = Driver(core)
    handle = driver.open(1, listener=1)
    driver.feed(handle, b"*2\r\n$3\r\nGET\r\n", 1)
    driver.expire(900)
    assert not driver.should_close(handle)
    driver.expire(2000)
    assert driver.should_close(handle)
    driver.close(handle)
    assert core.counters()["closed_frame_timeout"] == 1


def test_who_does_not_read_is_not_read(published):
    """Answers that wait for the peer or for Python stop reading; all arrive in the end."""
    core = make(published, max_queued=64 << 10, max_in_flight=3)
    driver = Driver(core)
    handle = driver.open(1, listener=1)
    for data in (array(b"GET", b"db:long") * 100, array(b"GET", b"carts:a") + array(b"GET", b"db:long") * 100):
        hand_offs = driver.feed(handle, data, 1)
        while driver.has_work and driver.wants_input(handle):
            hand_offs += driver.run(1)
        assert not driver.wants_input(handle)
        assert core.counters()["held_bytes"] < (64 << 10) + 3000 + len(data) + 100 * 48
        for _, msgid, _, _ in hand_offs:
            driver.reply(handle, msgid, rpc.response(msgid, [b"cart", b"token"]))
        received = b""
        while (got := driver.take_output(handle, 10_000, 1)) or driver.has_work:
            received += got
            driver.run(1)
        assert received == (b"$4\r\ncart\r\n" if hand_offs else b"") + (b"$3000\r\n" + b"x" * 3000 + b"\r\n") * 100
        assert core.counters()["held_bytes"] == 0
    driver.close(handle)


def test_what_waits_ends_with_its_connection(published):
    """Answers that wait for an earlier one count as held, and are freed with the connection."""
    core = make(published)
    driver = Driver(core)
    handle = driver.open(1, listener=1)
    driver.feed(handle, array(b"GET", b"carts:a") + array(b"GET", b"db:long") * 10, 1)
    assert driver.take_output(handle, 1 << 30, 1) == b""
    assert core.counters()["held_bytes"] > 30_000
    driver.close(handle)
    assert core.counters()["held_bytes"] == core.counters()["in_flight"] == 0


def test_who_waits_for_an_earlier_answer_reads(published):
    """A client that waits for an earlier answer is not closed for reading nothing."""
    driver = Driver(make(published))
    handle = driver.open(1, listener=1)
    driver.feed(handle, array(b"GET", b"carts:a") + array(b"GET", b"carts:b") + array(b"GET", b"db:k"), 1)
    assert driver.reply(handle, 1, rpc.response(1, [b"soon", b"token"]))
    assert driver.take_output(handle, 1 << 30, 1) == b""
    driver.expire(60_000)
    assert not driver.should_close(handle)
    assert driver.reply(handle, 0, rpc.response(0, [b"late", b"token"]))
    assert driver.take_output(handle, 1 << 30, 60_000) == b"$4\r\nlate\r\n$4\r\nsoon\r\n$1\r\nv\r\n"
    driver.close(handle)


def test_a_client_that_quits(published):
    """Earlier commands are answered, then OK comes; later commands are ignored."""
    data = array(b"GET", b"carts:a") + array(b"QUIT") + array(b"GET", b"db:k")
    assert told(make(published), data) == (b"$2\r\naa\r\n+OK\r\n", True)


@pytest.mark.parametrize(
    ("value", "second", "third"),
    [
        (None, b"$-1\r\n", b"_\r\n"),
        (-7, b":-7\r\n", b":-7\r\n"),
        (b"", b"$0\r\n\r\n", b"$0\r\n\r\n"),
        (b"a\r\n", b"$3\r\na\r\n\r\n", b"$3\r\na\r\n\r\n"),
        (RespLine("OK"), b"+OK\r\n", b"+OK\r\n"),
        (RespRefusal("ERR two\r\nlines"), b"-ERR two  lines\r\n", b"-ERR two  lines\r\n"),
        ([], b"*0\r\n", b"*0\r\n"),
        ([b"a", [None]], b"*2\r\n$1\r\na\r\n*1\r\n$-1\r\n", b"*2\r\n$1\r\na\r\n*1\r\n_\r\n"),
        ({b"a": {b"b": 1}}, b"*2\r\n$1\r\na\r\n*2\r\n$1\r\nb\r\n:1\r\n", b"%1\r\n$1\r\na\r\n%1\r\n$1\r\nb\r\n:1\r\n"),
    ],
)
def test_each_kind(value, second, third):
    """Each kind of value has the forms of protocols 2 and 3."""
    assert (say(value, 2), say(value, 3)) == (second, third)
