"""Every limit of a connection core: the value at the limit is accepted, one more is not."""

from __future__ import annotations

import ipaddress
import itertools
import random
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import BadRequest
from gossipkv.serving.published import publish
from gossipkv.serving.reads import Reads
from gossipkv.serving.scan import decode_cursor, encode_cursor
from gossipkv.settings.serving import ServingSettings
from gossipkv.storage.sorted_file import SortedFile
from gossipkv.wire import rpc
from gossipkv.wire.arguments import Arguments
from tests.oracle import addresses
from tests.unit.node.made_up_node import MadeUpLibrary
from tests.unit.serving.driven import Peer, make_core, make_version, one_database
from tests.world._world import Driver

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.wire.rpc import Value

PING = rpc.request(1, "ping", [])
PONG = rpc.response(1, "pong")


def nested(depth: int) -> bytes:
    """Return a request with `depth` levels; the parameters are the second."""
    value: Value = []
    for _ in range(depth - 2):
        value = [value]
    assert isinstance(value, list)
    return rpc.request(1, "m", value)


@pytest.mark.parametrize(
    ("limit", "within", "beyond", "code", "counter"),
    [
        ({"max_frame": 100}, rpc.request(1, "m", [b"x" * 92]), rpc.request(1, "m", [b"x" * 93]), "TOO_LARGE", "large"),
        ({"max_depth": 5}, nested(5), nested(6), "BAD_REQUEST", "deep"),
        (
            {"max_elements": 10},
            rpc.request(1, "m", [None] * 6),
            rpc.request(1, "m", [None] * 7),
            "BAD_REQUEST",
            "many_elements",
        ),
    ],
)
def test_frames(limit: dict[str, int], within: bytes, beyond: bytes, code: str, counter: str) -> None:
    """One more byte, level or element ends the connection with a typed error and is counted."""
    peer = Peer(make_core(**limit))
    assert len(peer.send(within)) == 1
    assert peer.driver.reply(peer.handle, 1, rpc.response(1, None))
    peer.take()
    peer.received = b""
    assert peer.send(beyond) == []
    ((_, msgid, error, _),) = peer.answers()
    assert (msgid, error[0]) == (1, code)
    assert peer.driver.should_close(peer.handle)
    assert peer.core.counters()[f"frames_too_{counter}"] == 1


def test_more_levels_than_the_scanner_has_room_for() -> None:
    with pytest.raises(ValueError, match="max_depth must be at most 32"):
        make_core(max_depth=33)


def test_keys(tmp_path: Path) -> None:
    """A key of `max_key` bytes is looked up; one more byte is left to Python to refuse."""
    core = make_core(max_key=10)
    core.publish(one_database(tmp_path, {b"k" * 10: b"v"}).table())
    peer = Peer(core)
    assert peer.ask("get", "db", b"k" * 10) == [None, [b"v", "v1"]]
    assert peer.ask("get_many", "db", [b"k" * 10]) == [None, [[b"v"], "v1"]]
    assert peer.hands_off("get", "db", b"k" * 11)
    assert peer.hands_off("get_many", "db", [b"k", b"k" * 11])


@pytest.mark.parametrize("option", ["start", "end", "prefix"])
def test_bounds_of_scans(tmp_path: Path, option: str) -> None:
    """A bound of `max_key` bytes is accepted; one more byte is refused by Python with limit and size."""
    core = make_core(max_key=10)
    published = one_database(tmp_path, {b"k": b"v"})
    core.publish(published.table())
    peer = Peer(core)
    assert peer.ask("scan", "db", {option: b"k" * 10})[0] is None
    assert peer.hands_off("scan", "db", {option: b"k" * 11})
    reads = Reads(
        MadeUpLibrary(),
        lambda *_, **__: None,
        ServingSettings(max_key=10, max_value=100, max_frame=1 << 20, scan_limit=10),
        node="n",
    )
    reads.published = published
    assert reads.scan(Arguments(b"scan", msgpack.packb(["db", {option: b"k" * 10}])))
    with pytest.raises(BadRequest, match=f"{option} has 11 bytes") as caught:
        reads.scan(Arguments(b"scan", msgpack.packb(["db", {option: b"k" * 11}])))
    assert caught.value.details == {"limit": 10, "size": 11}


def test_cursors_of_scans(tmp_path: Path) -> None:
    """A cursor with the longest name and key is read; a longer one is invalid."""
    core = make_core()
    core.publish(one_database(tmp_path, {b"k": b"v"}).table())
    peer = Peer(core)
    assert peer.ask("scan", "db", {"cursor": encode_cursor("v1", b"k" * 65_535)})[0] is None
    longest = encode_cursor("v" * 255, b"k" * 65_535)
    assert decode_cursor(longest) == ("v" * 255, b"k" * 65_535)
    longer = encode_cursor("v1", b"k" * 66_000)
    assert peer.hands_off("scan", "db", {"cursor": longer})
    with pytest.raises(BadRequest, match="not returned by this method"):
        decode_cursor(longer)


def test_values(tmp_path: Path) -> None:
    """A value of `max_value` bytes is sent; one more byte is TOO_LARGE, alone or in a batch."""
    core = make_core(max_value=1000)
    core.publish(one_database(tmp_path, {b"fits": b"x" * 1000, b"over": b"x" * 1001}).table())
    peer = Peer(core)
    assert peer.ask("get", "db", b"fits") == [None, [b"x" * 1000, "v1"]]
    assert peer.ask("get_many", "db", [b"fits", b"none"]) == [None, [[b"x" * 1000, None], "v1"]]
    for asked in (["get", "db", b"over"], ["get_many", "db", [b"fits", b"over"]]):
        (code, _, details), result = peer.ask(*asked)
        assert (code, details, result) == ("TOO_LARGE", {"limit": 1000, "size": 1001}, None)
    assert core.counters()["replies_too_large"] == 2
    assert peer.ask("ping") == [None, "pong"]


PARTIES = st.sampled_from(
    [
        "10.0.0.1",
        "10.0.0.2",
        "::ffff:10.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::10.0.0.3",
        "64:ff9b:0:1::1",
        "::1",
        "2001:db8::1",
        "2001:db8::2:1",
        "2001:db8:0:1::1",
        "fe80::1",
        "::fffe:10.0.0.1",
    ]
).map(lambda text: ipaddress.ip_address(text).packed)


@given(st.lists(st.tuples(PARTIES, st.booleans()), max_size=60), st.integers(0, 3))
def test_connections_of_one_address(steps: list[tuple[bytes, bool]], limit: int) -> None:
    """Admission agrees with the oracle, whatever the order of arrivals and ends."""
    driver = Driver(make_core(max_connections_per_address=limit))
    oracle = addresses.Doorkeeper(limit)
    inside: list[tuple[int, bytes]] = []
    for address, comes in steps:
        if comes or not inside:
            handle = driver.open(1, address)
            assert (handle is not None) is oracle.enter(address)
            if handle is not None:
                inside.append((handle, address))
        else:
            handle, gone = inside.pop(len(inside) // 2)
            driver.close(handle)
            oracle.leave(gone)


def test_thousands_of_addresses_come_and_go() -> None:
    """The table grows, collides and shrinks, and never miscounts."""
    draw = random.Random(11)
    core = make_core(max_connections=5000, max_connections_per_address=2)
    driver = Driver(core)
    oracle = addresses.Doorkeeper(2)
    inside: list[tuple[int, bytes]] = []
    refused = 0
    for _ in range(20_000):
        if draw.random() < 0.55 and len(inside) < 5000:
            address = draw.choice([b"\x0a\x00", b"\xff\x00"]) + draw.randrange(2000).to_bytes(2, "big")
            handle = driver.open(1, address)
            assert (handle is not None) is oracle.enter(address)
            if handle is None:
                refused += 1
            else:
                inside.append((handle, address))
        elif inside:
            at = draw.randrange(len(inside))
            inside[at], inside[-1] = inside[-1], inside[at]
            handle, gone = inside.pop()
            driver.close(handle)
            oracle.leave(gone)
    assert refused > 100
    counters = core.counters()
    assert (counters["connections_refused_by_address"], counters["connections_refused"]) == (refused, 0)


def test_an_address_has_four_bytes_or_sixteen() -> None:
    with pytest.raises(ValueError, match="4 or 16 bytes"):
        Driver(make_core()).open(1, b"12345")


def test_connections_in_all() -> None:
    core = make_core(max_connections=2)
    driver = Driver(core)
    assert None not in {driver.open(1), driver.open(1)}
    assert driver.open(1) is None
    assert core.counters()["connections_refused"] == 1


def test_requests_in_flight_of_one_connection() -> None:
    for count, taken in ((3, 3), (4, 3)):
        peer = Peer(make_core(max_in_flight=3))
        hand_offs = peer.send(b"".join(rpc.request(number, "info", []) for number in range(count)))
        assert len(hand_offs) == taken
        assert peer.core.counters()["paused_for_hand_offs"] == count - taken


def test_requests_in_flight_of_all_connections(tmp_path: Path) -> None:
    """Hand-offs over the limit are OVERLOADED at once; local answers go on."""
    core = make_core(max_in_flight_total=3)
    core.publish(one_database(tmp_path, {b"k": b"v"}).table())
    greedy, modest = Peer(core), Peer(core)
    assert len(greedy.send(b"".join(rpc.request(number, "info", []) for number in range(3)))) == 3
    (code, _, details), result = modest.ask("info", msgid=7)
    assert (code, details, result) == ("OVERLOADED", {"limit": 3}, None)
    assert modest.ask("get", "db", b"k", msgid=7) == [None, [b"v", "v1"]]
    assert core.counters()["overloaded"] == 1
    assert greedy.driver.reply(greedy.handle, 0, rpc.response(0, None))
    assert modest.hands_off("info", msgid=7)


def test_elements_that_python_decodes(tmp_path: Path) -> None:
    """A hand-off may have 1,024 elements; `get_many` has only the limit of frames."""
    core = make_core()
    core.publish(one_database(tmp_path, {b"k": b"v"}).table())
    peer = Peer(core)
    assert peer.hands_off("info", *[None] * 1020)
    (code, _, details), _ = peer.ask("info", *[None] * 1021)
    assert (code, details) == ("BAD_REQUEST", {"limit": 1024, "size": 1025})
    assert peer.hands_off("get_many", "nowhere", [b"k"] * 5000)
    assert peer.ask("get_many", "db", [b"k"] * 5000) == [None, [[b"v"] * 5000, "v1"]]


def test_a_peer_that_reads_for_long_is_not_idle(tmp_path: Path) -> None:
    """Idle time begins when the peer has taken the whole answer, however slowly."""
    core = make_core(idle_timeout_ms=1000, output_timeout_ms=1000)
    core.publish(one_database(tmp_path, {b"k": b"v" * 1000}).table())
    peer = Peer(core)
    peer.driver.feed(peer.handle, rpc.request(1, "get", ["db", b"k"]), 1)
    now_ms = 1
    for _ in range(10):
        now_ms += 900
        assert peer.driver.take_output(peer.handle, 10, now_ms)
        peer.driver.expire(now_ms)
        assert not peer.driver.should_close(peer.handle)
    assert peer.driver.take_output(peer.handle, 10_000, now_ms)
    peer.driver.expire(now_ms + 1000)
    assert not peer.driver.should_close(peer.handle)
    peer.driver.expire(now_ms + 1001)
    assert peer.driver.should_close(peer.handle)


def test_two_gathered_gets_with_one_id_that_python_must_see(tmp_path: Path) -> None:
    """The second request is refused as a duplicate, and nothing stays in flight."""
    version = make_version(tmp_path, "db", "v1", {b"key": b"value" * 10})
    image = bytearray(next(tmp_path.glob("*.gkv")).read_bytes())
    image[100] ^= 1
    version.files[0] = SortedFile(bytes(image), name="broken.gkv")
    core = make_core()
    core.publish(publish([(version, True)]).table())
    peer = Peer(core)
    ((handle, msgid, *_),) = peer.send(2 * rpc.request(7, "get", ["db", b"key"]))
    ((_, refused, error, _),) = peer.answers()
    assert (refused, error[0]) == (7, "BAD_REQUEST")
    assert peer.driver.reply(handle, msgid, rpc.response(msgid, None))
    assert core.counters()["in_flight"] == 0
    assert core.counters()["duplicate_ids"] == 1


def test_elements_of_what_comes_behind(tmp_path: Path) -> None:
    """A get for Python is not refused for the elements of the request behind it."""
    version = make_version(tmp_path, "db", "v1", {b"k": b"v" * 100})
    image = bytearray(next(tmp_path.glob("*.gkv")).read_bytes())
    image[image.rindex(b"vvvv")] ^= 1
    version.files[0] = SortedFile(bytes(image), name="broken.gkv")
    core = make_core()
    core.publish(publish([(version, True)]).table())
    peer = Peer(core)
    hand_offs = peer.send(rpc.request(1, "get", ["db", b"k"]) + rpc.request(2, "info", [None] * 2000))
    assert [msgid for _, msgid, _, _ in hand_offs] == [1]
    assert [answer[1] for answer in peer.answers()] == [2]


def test_keys_that_were_looked_up_for_nothing(tmp_path: Path) -> None:
    """Lookups for answers that are too large count for the slice: each request has 2,048 keys before its long value."""
    core = make_core(max_value=10)
    core.publish(one_database(tmp_path, {b"k": b"v", b"long": b"x" * 11}).table())
    peer = Peer(core)
    keys = [b"k"] * 2048 + [b"long"]
    peer.driver.feed(peer.handle, b"".join(rpc.request(number, "get_many", ["db", keys]) for number in range(6)), 1)
    turns = [core.counters()["replies_too_large"]]
    while turns[-1] < 6:
        assert peer.driver.run(1) == []
        turns.append(core.counters()["replies_too_large"])
    assert max(after - before for before, after in itertools.pairwise(turns)) == 1
    peer.take()
    assert [(answer[1], answer[2][0]) for answer in peer.answers()] == [(number, "TOO_LARGE") for number in range(6)]


def test_keys_of_one_turn(tmp_path: Path) -> None:
    """The batches of a connection have bounded work in a step, many small or few large ones."""
    for count, size in ((60, 200), (6, 2048)):
        core = make_core()
        core.publish(one_database(tmp_path, {b"k": b"v"}).table())
        peer = Peer(core)
        stream = b"".join(rpc.request(number, "get_many", ["db", [b"k"] * size]) for number in range(count))
        peer.driver.feed(peer.handle, stream, 1)
        turns = [0, core.counters()["keys_read"]]
        while turns[-1] < count * size:
            assert peer.driver.run(1) == []
            turns.append(core.counters()["keys_read"])
        assert max(after - before for before, after in itertools.pairwise(turns)) <= 4000
        peer.take()
        assert [answer[1] for answer in peer.answers()] == list(range(count))
        assert core.counters()["held_bytes"] == core.counters()["in_flight"] == 0


def test_answers_that_one_peer_has_not_read() -> None:
    """Reading goes on below `max_queued` and stops at it."""
    for limit, reads in ((3 * len(PONG) + 1, True), (3 * len(PONG), False)):
        peer = Peer(make_core(max_queued=limit))
        peer.driver.feed(peer.handle, PING * 3, 1)
        assert peer.driver.wants_input(peer.handle) is reads


def test_what_all_connections_hold() -> None:
    """Exactly `max_held` is kept; one more byte closes the connection that holds most."""
    for limit, closed in ((1000, False), (999, True)):
        core = make_core(max_held=limit)
        first, second = Peer(core), Peer(core)
        first.send(rpc.request(1, "m", [b"x" * 1000])[:501])
        second.send(rpc.request(1, "m", [b"x" * 1000])[:499])
        assert first.driver.should_close(first.handle) is closed
        assert not second.driver.should_close(second.handle)
        first.driver.close(first.handle)
        assert core.counters()["closed_memory"] == closed
        assert core.counters()["held_bytes"] == 499


def test_who_holds_most_is_closed_and_not_who_comes_last() -> None:
    """Few large connections do not drive out small ones, and their memory is freed at once."""
    core = make_core(max_held=10_000, max_frame=20_000)
    greedy, modest = Peer(core), Peer(core)
    greedy.send(rpc.request(1, "m", [b"x" * 15_000])[:9_995])
    ping = rpc.request(7, "ping", [])
    modest.send(ping[:6])
    modest.send(ping[6:])
    assert modest.answers() == [[1, 7, None, "pong"]]
    assert greedy.driver.should_close(greedy.handle)
    assert core.counters()["held_bytes"] == 0


def test_who_is_closed_for_memory_takes_nobody_along() -> None:
    """Input behind the excessive request is not kept, so no other connection is closed for it."""
    core = make_core(max_held=1000, max_frame=2000)
    large, greedy = Peer(core), Peer(core)
    large.send(rpc.request(1, "m", [b"x" * 1000])[:800])
    greedy.send(rpc.request(1, "m", [b"x" * 900]) + rpc.request(2, "m", [b"x" * 500])[:300])
    assert greedy.driver.should_close(greedy.handle)
    assert not large.driver.should_close(large.handle)


def test_methods_count_in_what_is_held() -> None:
    """A method's name counts like parameters."""
    core = make_core(max_held=1000, max_frame=2000)
    peer, other = Peer(core), Peer(core)
    other.send(PING[:3])
    peer.send(rpc.request(1, "m" * 1100, []))
    assert peer.driver.should_close(peer.handle)
    assert not other.driver.should_close(other.handle)


def test_who_wants_most_goes_itself() -> None:
    """The newcomer that would hold most is closed, and the others stay."""
    core = make_core(max_held=10_000, max_frame=20_000)
    small = [Peer(core) for _ in range(4)]
    for peer in small:
        peer.send(rpc.request(1, "m", [b"x" * 15_000])[:1000])
    greedy = Peer(core)
    greedy.send(rpc.request(1, "m", [b"x" * 15_000])[:6001])
    assert greedy.driver.should_close(greedy.handle)
    assert not any(peer.driver.should_close(peer.handle) for peer in small)
    assert core.counters()["held_bytes"] == 4000


@pytest.mark.parametrize("name", ["frame", "output", "idle"])
def test_times(name: str) -> None:
    """Each of the three timeouts has its setting: a connection stays at its end and goes a millisecond later."""
    limits = {"frame_timeout_ms": 9000, "output_timeout_ms": 9000, "idle_timeout_ms": 9000} | {
        f"{name}_timeout_ms": 500
    }
    peer = Peer(make_core(**limits), now_ms=100)
    if name == "frame":
        peer.send(PING[:3])
    elif name == "output":
        peer.driver.feed(peer.handle, PING, 100)
    peer.driver.expire(600)
    assert not peer.driver.should_close(peer.handle)
    peer.driver.expire(601)
    assert peer.driver.should_close(peer.handle)
    peer.driver.close(peer.handle)
    assert peer.core.counters()[f"closed_{name}" + ("" if name == "idle" else "_timeout")] == 1


class Crowd:
    """Connections from several addresses to a core that admits 100."""

    def __init__(self, *, wants_tokens: bool = False, pause_ms: int = 1) -> None:
        self.pause_ms = pause_ms
        self.core = make_core(max_connections=100, max_connections_per_address=100, frame_timeout_ms=1 << 30)
        self.core.let_read([b"\0"] if wants_tokens else [], wants_tokens=wants_tokens)
        self.driver = Driver(self.core)
        self.now_ms = 1
        self.of: dict[int, int] = {}  # The address by handle, in order of arrival.
        self.proven: set[int] = set()

    def open(self, address: int) -> int | None:
        self.now_ms += self.pause_ms
        handle = self.driver.open(self.now_ms, address.to_bytes(4, "big"))
        if handle is not None:
            self.of[handle] = address
        return handle

    def ping(self, handle: int, user: int = 0) -> None:
        self.driver.feed(handle, PING, self.now_ms)
        if user:
            hand_offs = self.driver.feed(handle, rpc.request(2, "auth", [b"token"]), self.now_ms)
            self.driver.reply(handle, hand_offs[0][1], rpc.response(2, None), user)
        self.driver.take_output(handle, 1 << 20, self.now_ms)
        self.proven.add(handle)

    def gone(self) -> list[int]:
        """Close the connections that should be closed; return their handles."""
        gone = [handle for handle in self.of if self.driver.should_close(handle)]
        for handle in gone:
            self.driver.close(handle)
        return gone

    def forget(self, gone: list[int]) -> None:
        for handle in gone:
            del self.of[handle]
            self.proven.discard(handle)


@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_silent_connections_make_way(seed: int, addresses: int) -> None:
    """No newcomer is refused while a connection is silent: the oldest silent ones of the busiest address go."""
    # If none can be evicted, half a second passes before the next attempt.
    crowd, draw = Crowd(pause_ms=500), random.Random(seed)
    for _ in range(400):
        newcomer = crowd.open(draw.choice([1, draw.randrange(addresses)]))
        assert newcomer is not None or (len(crowd.of) == 100 and len(crowd.proven) >= 99)
        gone = crowd.gone()
        silent = [handle for handle in crowd.of if handle not in crowd.proven and handle != newcomer]
        counts = {address: [*crowd.of.values()].count(address) for address in crowd.of.values()}
        if gone:
            assert len(crowd.of) >= 90
            busiest = max(counts[crowd.of[handle]] for handle in silent)
            assert {counts[crowd.of[handle]] for handle in gone} == {busiest}
            (address,) = {crowd.of[handle] for handle in gone}
            of_address = [handle for handle in silent if crowd.of[handle] == address]
            assert gone == of_address[: (len(of_address) + 1) // 2]
        else:
            assert len(crowd.of) < 90 or not silent
        crowd.forget(gone)
        if newcomer is not None and draw.random() < 0.3:
            crowd.ping(newcomer)
    assert crowd.core.counters()["held_bytes"] == 0


@pytest.mark.parametrize("wants_tokens", [False, True])
def test_a_silent_connection_has_ten_seconds_in_a_crowd(wants_tokens: bool) -> None:
    """The limit applies above 80 % of `max_connections`; with users, a connection must authenticate."""
    crowd = Crowd(wants_tokens=wants_tokens)
    opened = [crowd.open(number % 5) for number in range(81)]
    handles = [handle for handle in opened if handle is not None]
    for handle in handles[:20]:
        crowd.ping(handle)
    for handle in handles[20:40]:
        crowd.ping(handle, user=2)
    begun_ms = crowd.now_ms
    crowd.driver.expire(begun_ms + 9_900)
    assert crowd.gone() == []
    crowd.driver.expire(begun_ms + 10_001)
    gone = crowd.gone()
    assert gone == (handles[:20] if wants_tokens else []) + handles[40:]
    assert crowd.core.counters()["closed_unproven"] == len(gone)


def test_where_there_is_room_one_may_be_silent() -> None:
    crowd = Crowd()
    for number in range(80):
        crowd.open(number % 5)
    crowd.driver.expire(3_600_000)
    assert crowd.gone() == []


def test_a_frame_of_nothing_but_arrays_costs_nothing() -> None:
    """10 MB of 0x90 or 0x91 are refused or dropped at once, and nothing is kept."""
    for byte in (b"\x90", b"\x91"):
        peer = Peer(make_core())
        for _ in range(160):
            if not peer.driver.wants_input(peer.handle):
                break
            peer.send(byte * 65_536)
        counters = peer.core.counters()
        assert counters["bytes_received"] == 65_536
        assert counters["held_bytes"] == 0
        assert msgpack.unpackb(peer.received or b"\xc0") is None
