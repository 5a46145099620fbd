"""Scans through the core by hand: answers agree with the oracle, and others wait for at most a slice."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import BadRequest, Corrupt, GossipKVError
from gossipkv.serving.published import publish
from gossipkv.serving.reads import Reads
from gossipkv.settings.serving import ServingSettings
from gossipkv.storage.sorted_file import SortedFile
from gossipkv.wire import rpc
from gossipkv.wire.arguments import Arguments
from gossipkv.wire.results import Packed
from tests.oracle import scan
from tests.unit.node.made_up_node import MadeUpLibrary
from tests.unit.serving.driven import BuiltVersion, Peer, is_pinned, make_core, make_file, make_version
from tests.unit.wire.answers import error_response
from tests.world.sorted_files import build

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gossipkv.serving._serving import Core
    from gossipkv.serving.published import Published
    from gossipkv.wire.rpc import Value

FEW = {b"": b"", b"\xff\xff": b"high", **{b"key%02d" % number: b"v" * number for number in range(60)}}
MANY = {b"key%05d" % number: b"value of %05d, and some more of it" % number for number in range(4000)}
PARTITIONS = 200
# A slice has 2,000 units, of which a search takes 16 and a record 1, and the step that reached the end.
SLICE_WORK = 2000 + 16
# The work that is done at once for new requests.
WORK_AT_ONCE = 8000
MAX_FRAME = 1 << 20
EVERYTHING: dict[str, Value] = {"limit": 1_000_000}
GET = rpc.request(1, "get", ["db", b"key00007"])


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Return three small versions; the second is active."""
    directory = tmp_path_factory.mktemp("few")
    return publish([
        (make_version(directory, "db", "v1", {b"old": b"one"}), False),
        (make_version(directory, "db", "v2", FEW, 5), True),
        (make_version(directory, "db", "v3", {}, 2), False),
    ])  # fmt: skip


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Return MANY in so many partitions that a full scan takes several slices."""
    directory = tmp_path_factory.mktemp("many")
    return publish([(make_version(directory, "db", "v1", MANY, PARTITIONS), True)])


def core_of(published: Published, **limits: int) -> Core:
    """Return a core with room for all answers."""
    core = make_core(**{"max_queued": 1 << 24, "scan_limit": 1_000_000, **limits})
    core.publish(published.table())
    return core


def answer(
    records: Mapping[bytes, bytes],
    options: Mapping[str, Value],
    msgid: int = 1,
    *,
    version: str = "v1",
    scan_limit: int = 1_000_000,
    max_frame: int = MAX_FRAME,
) -> bytes:
    """Return the bytes that a plain-Python node would send."""
    result = scan.result(sorted(records.items()), version, options, scan_limit=scan_limit, max_frame=max_frame)
    frame: bytes = msgpack.packb([1, msgid, None, result])
    return frame


def ask(peer: Peer, options: Mapping[str, Value], msgid: int = 1) -> None:
    """Send a scan; check that it is not handed off."""
    assert peer.send(rpc.request(msgid, "scan", ["db", dict(options)])) == []


def run(core: Core, *peers: Peer) -> int:
    """Run slices while the peers read until no work is left; return their number."""
    for number in itertools.count():
        for peer in peers:
            peer.take()
        if not peers[0].driver.has_work:
            return number
        assert number < 100_000
        assert peers[0].driver.run(peers[0].now_ms) == []
    raise AssertionError


# The answers ------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["v1", "v2", "v3", "v0", "", "v1é", "x" * 300])
KEYS = st.sampled_from([
    *FEW, b"k", b"key", b"key1", b"key3", b"l", b"\xff", b"\xff\xff\xff", b"key05\0", b"key05\xff\xff", b"\xfe\xff\xff"
])  # fmt: skip
TEXT_KEYS = st.sampled_from(["key1", "k", ""])
CURSORS = st.builds(scan.cursor, NAMES, KEYS)
ODD = st.sampled_from([None, 0, -1, 1.5, True, [], {}, b"\xff", "é", 2**40 + 1, 2**64 - 1])
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "start": KEYS | TEXT_KEYS | st.none(),
        "end": KEYS | TEXT_KEYS | st.none(),
        "prefix": KEYS | TEXT_KEYS | st.none(),
        "reverse": st.booleans() | st.none(),
        "limit": st.integers(1, 70) | st.none(),
        "cursor": CURSORS | st.none(),
        "version": NAMES | st.none(),
        "min_version": NAMES.filter(str.isascii) | st.none(),  # Others are handed off, though Python may answer.
        "timeout_ms": st.integers(0, 2**40) | st.none(),
        "local": st.booleans() | st.none(),
    },
)
SPOILT = st.dictionaries(
    st.sampled_from(
        ["start", "end", "prefix", "reverse", "limit", "cursor", "version", "min_version", "timeout_ms", "local"]
    )
    | st.sampled_from(["starts", "", b"\xff", b"limit"]),
    ODD,
    max_size=1,
)


def python_answer(published: Published, params: bytes, *, max_frame: int) -> bytes | None:
    """Return the answer of the Python method, or None for an error."""
    reads = Reads(
        MadeUpLibrary(),
        lambda database, version, *, by_name: None,
        ServingSettings(max_key=100, max_value=1 << 20, max_frame=max_frame, scan_limit=50),
        node="n",
    )
    reads.published = published
    try:
        result = reads.scan(Arguments(b"scan", params))
        assert isinstance(result, Packed)
        return b"\x94\x01\x01\xc0" + result.data
    except GossipKVError:
        return None


@given(options=OPTIONS, spoilt=SPOILT | st.just({}), max_frame=st.sampled_from([1 << 20, 3000]))
def test_answers_are_those_of_python(
    few: Published, options: dict[str, Value], spoilt: dict[str, Value], max_frame: int
) -> None:
    """Answers are byte-identical; exactly the requests with an error in Python are handed off unchanged."""
    core = core_of(few, scan_limit=50, max_frame=max_frame)
    peer = Peer(core)
    params = msgpack.packb(["db", {**options, **spoilt}])
    hand_offs = peer.send(b"\x94\x00\x01\xa4scan" + params)
    expected = python_answer(few, params, max_frame=max_frame)
    if expected is None:
        assert hand_offs == [(peer.handle, 1, b"scan", params)]
        assert peer.received == b""
    else:
        assert hand_offs == []
        assert peer.received == expected


@given(options=OPTIONS.filter(lambda options: not {"cursor", "version", "min_version"} & options.keys()))
def test_answers_are_those_of_the_oracle(few: Published, options: dict[str, Value]) -> None:
    """Answers are byte-identical; text means its bytes."""
    peer = Peer(core_of(few, scan_limit=50))
    ask(peer, options)
    bounds = {name: value.encode() if isinstance(value, str) else value for name, value in options.items()}
    assert peer.received == answer(FEW, bounds, version="v2", scan_limit=50)


def test_what_is_no_scan(few: Published) -> None:
    """Python answers wrong parameters with an error; a scan without options covers the whole database."""
    peer = Peer(core_of(few))
    for params in ([], [1], ["nowhere"], ["db", 1], ["db", None], ["db", {}, {}], [["db"]]):
        assert peer.hands_off("scan", *params)
    assert peer.send(rpc.request(1, "scan", ["db"])) == []
    assert peer.received == answer(FEW, {}, version="v2")


def test_a_missing_partition_is_handed_off(tmp_path: Path) -> None:
    file = make_file(tmp_path, {b"a": b"b"})
    peer = Peer(core_of(publish([(BuiltVersion("db", "v1", [file, None]), True)])))
    assert peer.hands_off("scan", "db")


def test_an_answer_that_fits_into_no_frame(tmp_path: Path) -> None:
    """The first record is sent whatever its size, unless its frame or value exceeds the limit."""
    published = publish([(make_version(tmp_path, "db", "v1", {b"a": b"x" * 3000, b"b": b"y"}), True)])
    assert Peer(core_of(published, max_frame=4000)).ask("scan", "db")[0] is None
    error, result = Peer(core_of(published, max_frame=2000)).ask("scan", "db")
    assert error[0] == "TOO_LARGE"
    assert (error[2]["limit"], result) == (2000, None)
    assert error[2]["size"] > 3000
    assert Peer(core_of(published, max_value=2999)).hands_off("scan", "db")


def test_requests_are_counted(few: Published) -> None:
    """Each answer counts once, by name if a version or cursor names it; records and searches are counted."""
    table = few.table()
    core = make_core()
    core.publish(table)
    peer = Peer(core)
    for options in ({}, {"version": "v2"}, {"cursor": scan.cursor("v2", b"key50")}, {"min_version": "v1"}):
        ask(peer, options)
    peer.answers()
    assert peer.hands_off("scan", "db", {"version": "v9"})
    assert table.requests()["db", "v2"] == (4, 2, 0, 0)
    counters = core.counters()
    assert counters["scans"] == counters["scan_slices"] == 4
    assert counters["partitions_searched"] == 4 * 5
    assert counters["records_scanned"] == 3 * len(FEW) + 10


def make_compressed(directory: Path, *, reverse: bool) -> tuple[list[SortedFile | None], list[bytes]]:
    """Return MANY in 150 compressed files that cache one block, and a key of each to evict the scan's block."""
    groups: list[dict[bytes, bytes]] = [{} for _ in range(150)]
    for number, (key, value) in enumerate(MANY.items()):
        groups[number * 7 % 150][key] = value * 20
    files: list[SortedFile | None] = []
    for number, group in enumerate(groups):
        build(directory / f"{number}.gkv", group.items(), compression="lz4")
        files.append(SortedFile(directory / f"{number}.gkv", cache_bytes=1))
    return files, [min(group) if reverse else max(group) for group in groups]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_whole_database_page_by_page(tmp_path: Path, many: Published, reverse: bool) -> None:
    """Forward and backward, plain and compressed, the pages join to the sorted records."""
    files, others = make_compressed(tmp_path, reverse=reverse)
    compressed = publish([(BuiltVersion("db", "v1", files), True)])
    expected = sorted(MANY.items(), reverse=reverse)
    for published, times in ((many, 1), (compressed, 20)):
        core = core_of(published, max_frame=200_000)
        peer = Peer(core)
        found: list[tuple[bytes, bytes]] = []
        options: dict[str, Value] = {"reverse": reverse}
        while True:
            ask(peer, options)
            while not peer.received:
                # This evicts the blocks of the scan from the caches.
                for file, other in zip(files, others, strict=True):
                    assert file is not None
                    assert file.get(other) is not None
                assert peer.driver.run(1) == []
                peer.take()
            ((_, _, error, (records, cursor, version)),) = peer.answers()
            assert (error, version) == (None, "v1")
            found += [(key, value) for key, value in records]
            if cursor is None:
                break
            options["cursor"] = cursor
        assert found == [(key, value * times) for key, value in expected]
        assert core.counters()["scan_slices"] > core.counters()["scans"] > 1


# Slices and turns -------------------------------------------------------------------------------------------------


def test_others_are_answered_between_slices(many: Published) -> None:
    """Slices have bounded work, and a get of another connection is answered between any two."""
    core = core_of(many)
    scanner, getter = Peer(core), Peer(core)
    before = core.counters()
    ask(scanner, EVERYTHING)
    slices = 0
    while not scanner.received:
        after = core.counters()
        searched = after["partitions_searched"] - before["partitions_searched"]
        records = after["records_scanned"] - before["records_scanned"]
        assert searched + records > 0
        assert 16 * searched + records <= SLICE_WORK
        before = after
        getter.send(GET)
        assert getter.answers() == [[1, 1, None, [MANY[b"key00007"], "v1"]]]
        assert scanner.driver.run(1) == []
        slices += 1
        scanner.take()
    assert scanner.received == answer(MANY, EVERYTHING)
    assert 2 <= slices < 20
    assert core.counters()["in_flight"] == core.counters()["held_bytes"] == 0


def test_requests_of_one_receive_share_the_work_of_a_turn(few: Published) -> None:
    """Many scans that arrive at once share the work of one turn."""
    core = core_of(few)
    peer = Peer(core)
    requests = [rpc.request(msgid, "scan", ["db"]) for msgid in range(98)]
    assert peer.send(b"".join(requests)) == []
    counters = core.counters()
    assert counters["partitions_searched"] * 16 + counters["records_scanned"] <= WORK_AT_ONCE + 16
    assert counters["scans"] > 10
    assert 1 <= run(core, peer) <= 6
    assert [msgid for _, msgid, _, _ in peer.answers()] == list(range(98))


def test_scanners_take_turns(many: Published) -> None:
    """Three equal scans end within a few turns of each other."""
    core = core_of(many)
    peers = [Peer(core) for _ in range(3)]
    for peer in peers:
        ask(peer, EVERYTHING)
    ended: dict[int, int] = {}
    for number in range(1000):
        for index, peer in enumerate(peers):
            peer.take()
            if peer.received:
                ended.setdefault(index, number)
        if len(ended) == 3:
            break
        peers[0].driver.run(1)
    assert max(ended.values()) - min(ended.values()) <= 3
    assert min(ended.values()) > 3
    assert [peer.received for peer in peers] == [answer(MANY, EVERYTHING)] * 3


def test_one_that_asks_for_much_waits_behind_others(many: Published) -> None:
    """Twenty long scans of one connection run one after another; another connection's scan does not wait for them."""
    core = core_of(many)
    greedy, modest = Peer(core), Peer(core)
    for msgid in range(20):
        ask(greedy, EVERYTHING, msgid)
    ask(modest, EVERYTHING, 99)
    while not modest.received:
        modest.driver.run(1)
        modest.take()
        greedy.take()
    before = [msgid for _, msgid, _, _ in greedy.answers()]
    assert len(before) <= 2
    run(core, greedy)
    assert before + [msgid for _, msgid, _, _ in greedy.answers()] == list(range(20))
    assert core.counters()["scans"] == 21


def test_only_some_scans_run(many: Published) -> None:
    """32 scans run at once; the others keep only their request, and begin in order of arrival."""
    core = core_of(many, max_connections=200)
    peers = [Peer(core) for _ in range(100)]
    for peer in peers:
        ask(peer, EVERYTHING)
    order: list[int] = []
    most = 0
    while len(order) < len(peers):
        peers[0].driver.run(1)
        most = max(most, core.counters()["held_bytes"])
        for index, peer in enumerate(peers):
            peer.take()
            if peer.received and index not in order:
                order.append(index)
    size = len(answer(MANY, EVERYTHING))
    assert most < 32 * (4 * size + 400 * PARTITIONS)
    assert set(order[:32]) == set(range(32))
    assert all(abs(order.index(number) - number) <= 32 for number in range(100))
    assert core.counters()["held_bytes"] == 0


# The connection during a scan --------------------------------------------------------------------------------------


def test_an_id_of_a_scan_under_way(many: Published) -> None:
    """The id is in flight until the answer."""
    core = core_of(many)
    peer = Peer(core)
    ask(peer, EVERYTHING, 5)
    error, _ = peer.ask("ping", msgid=5)
    assert error[0] == "BAD_REQUEST"
    ask(peer, EVERYTHING, 5)
    assert peer.answers()[0][2][0] == "BAD_REQUEST"
    run(core, peer)
    assert peer.received == answer(MANY, EVERYTHING, 5)
    peer.answers()
    assert peer.ask("ping", msgid=5) == [None, "pong"]


def test_scans_under_way_count_as_in_flight(many: Published) -> None:
    """At `max_in_flight` the connection is not read until the next answer."""
    core = core_of(many, max_in_flight=2)
    peer = Peer(core)
    requests = [rpc.request(msgid, "scan", ["db", dict(EVERYTHING)]) for msgid in range(3)]
    assert peer.send(b"".join(requests)) == []
    assert core.counters()["in_flight"] == 2
    assert not peer.driver.wants_input(peer.handle)
    run(core, peer)
    assert [msgid for _, msgid, _, _ in peer.answers()] == [0, 1, 2]
    assert peer.driver.wants_input(peer.handle)
    assert core.counters()["paused_for_hand_offs"] == 1


def test_too_much_in_flight_in_all(many: Published, few: Published) -> None:
    """A scan that would have to wait is refused; one that ends in its first slice is answered."""
    core = core_of(many, max_in_flight_total=1)
    peer, other = Peer(core), Peer(core)
    ask(peer, EVERYTHING)
    error, _ = other.ask("scan", "db", EVERYTHING)
    assert error[0] == "OVERLOADED"
    run(core, peer)
    assert peer.received == answer(MANY, EVERYTHING)
    assert core.counters()["in_flight"] == core.counters()["held_bytes"] == 0
    core = core_of(few, max_in_flight_total=1)
    peer = Peer(core)
    assert len(peer.send(rpc.request(1, "info", []))) == 1
    ask(peer, {}, 2)
    assert peer.received == answer(FEW, {}, 2, version="v2")


def test_a_connection_that_ends_amid_a_scan(many: Published) -> None:
    """The scans of the closed connection are dropped, also waiting ones; another connection's goes on."""
    core = core_of(many)
    gone, other = Peer(core), Peer(core)
    ask(gone, EVERYTHING, 1)
    ask(gone, EVERYTHING, 2)
    ask(other, EVERYTHING)
    gone.driver.run(1)
    gone.driver.close(gone.handle)
    assert core.counters()["in_flight"] == 1
    run(core, other)
    assert other.received == answer(MANY, EVERYTHING)
    assert core.counters()["scans"] == 1
    assert core.counters()["held_bytes"] == 0
    assert not other.driver.has_work


def test_a_core_that_ends_amid_scans(many: Published) -> None:
    core = core_of(many)
    peers = [Peer(core) for _ in range(40)]
    for peer in peers:
        ask(peer, EVERYTHING)
    peers[0].driver.run(1)
    del core, peer, peers


def test_a_drain_waits_for_scans(many: Published) -> None:
    """After the end of input the connection stays until the scan is answered and read."""
    core = core_of(many, idle_timeout_ms=50)
    peer = Peer(core)
    ask(peer, EVERYTHING)
    peer.driver.end_input(peer.handle)
    peer.driver.expire(1000)
    assert not peer.driver.should_close(peer.handle)
    while peer.driver.has_work:
        assert not peer.driver.should_close(peer.handle)
        peer.driver.run(1000)
    assert not peer.driver.should_close(peer.handle)
    peer.take()
    assert peer.received == answer(MANY, EVERYTHING)
    assert peer.driver.should_close(peer.handle)


def test_a_peer_that_does_not_read_is_not_answered(many: Published) -> None:
    """A second scan begins only after the first is read; other connections go on."""
    core = core_of(many, max_queued=1000)
    silent, other = Peer(core), Peer(core)
    requests = [rpc.request(msgid, "scan", ["db", dict(EVERYTHING)]) for msgid in (1, 2)]
    assert silent.driver.feed(silent.handle, b"".join(requests), 1) == []
    run(core, other)
    assert core.counters()["scans"] == 1
    assert core.counters()["in_flight"] == 1
    ask(other, EVERYTHING)
    run(core, other)
    assert other.received == answer(MANY, EVERYTHING)
    silent.take()
    assert silent.received == answer(MANY, EVERYTHING, 1)
    run(core, silent)
    assert silent.received == answer(MANY, EVERYTHING, 1) + answer(MANY, EVERYTHING, 2)


def test_a_parked_connection_may_end(many: Published) -> None:
    core = core_of(many, max_queued=1000)
    silent, other = Peer(core), Peer(core)
    for msgid in (1, 2):
        silent.driver.feed(silent.handle, rpc.request(msgid, "scan", ["db", dict(EVERYTHING)]), 1)
    run(core, other)
    silent.driver.close(silent.handle)
    assert core.counters()["in_flight"] == core.counters()["held_bytes"] == 0
    assert not other.driver.has_work


def test_memory_of_scans_is_bounded(many: Published) -> None:
    """The connection whose scan would exceed `max_held` is closed, and others are served."""
    core = core_of(many, max_held=100_000)
    peer, other = Peer(core), Peer(core)
    ask(peer, EVERYTHING)
    run(core, other)
    assert peer.driver.should_close(peer.handle)
    peer.driver.close(peer.handle)
    assert core.counters()["closed_memory"] == 1
    assert core.counters()["held_bytes"] == core.counters()["in_flight"] == 0
    ask(other, {"limit": 5})
    run(core, other)
    assert other.received == answer(MANY, {"limit": 5})


# The data during a scan --------------------------------------------------------------------------------------------


def test_a_scan_keeps_its_version_through_a_swap(tmp_path: Path) -> None:
    """A running scan uses the old table, whose files stay pinned until the last such scan ends."""
    old = make_version(tmp_path, "db", "v1", MANY, PARTITIONS)
    new = make_version(tmp_path, "db", "v2", {b"new": b"one"})
    core = core_of(publish([(old, True)]))
    first, second = Peer(core), Peer(core)
    ask(first, EVERYTHING, 1)
    ask(first, EVERYTHING, 2)  # The second scan waits, and begins in the table that is served then.
    ask(second, EVERYTHING)
    table = publish([(new, True)]).table()
    core.publish(table)
    second.driver.close(second.handle)
    assert all(map(is_pinned, old.files))
    run(core, first)
    expected = answer(MANY, EVERYTHING, 1) + answer({b"new": b"one"}, EVERYTHING, 2, version="v2")
    assert first.received == expected
    assert not any(map(is_pinned, old.files))
    assert table.requests() == {("db", "v2"): (1, 0, 0, 0)}


def test_a_scan_is_counted_where_requests_are_counted_then(tmp_path: Path) -> None:
    """A scan that began in an older table counts in the current one, if that holds the version."""
    held = make_version(tmp_path, "db", "v1", MANY, PARTITIONS)
    core = core_of(publish([(held, True)]))
    peer = Peer(core)
    ask(peer, {**EVERYTHING, "version": "v1"})
    table = publish([(held, True)]).table()
    core.publish(table)
    run(core, peer)
    assert table.requests() == {("db", "v1"): (1, 1, 0, 0)}


def test_a_version_that_is_gone_when_its_turn_comes(many: Published, tmp_path: Path) -> None:
    """A waiting scan without its version is handed off, and Python answers with the error."""
    core = core_of(many)
    peer = Peer(core)
    ask(peer, EVERYTHING, 1)
    params = ["db", {"version": "v1", "limit": 3}]
    assert peer.send(rpc.request(2, "scan", params)) == []
    core.publish(publish([(make_version(tmp_path, "db", "v2", FEW), True)]).table())
    hand_offs = []
    while peer.driver.has_work:
        hand_offs += peer.driver.run(1)
    assert hand_offs == [(peer.handle, 2, b"scan", msgpack.packb(params))]
    assert core.counters()["in_flight"] == 1
    assert peer.driver.reply(peer.handle, 2, rpc.response(2, None))
    assert core.counters()["in_flight"] == 0


def test_damage_amid_a_scan(tmp_path: Path) -> None:
    """The slice that meets damage hands off; Python answers CORRUPT and reports the damage to the library."""
    version = make_version(tmp_path, "db", "v1", MANY, PARTITIONS)
    image = bytearray(max(tmp_path.glob("*.gkv")).read_bytes())
    at = image.rindex(b"value of")
    image[at] ^= 1
    broken = SortedFile(bytes(image), name="broken.gkv")
    with pytest.raises(Corrupt):
        list(broken.scan())
    version.files[150] = broken
    published = publish([(version, True)])
    core = core_of(published)
    peer, other = Peer(core), Peer(core)
    ask(peer, EVERYTHING, 7)
    hand_offs = []
    while peer.driver.has_work:
        hand_offs += peer.driver.run(1)
    params = msgpack.packb(["db", EVERYTHING])
    assert hand_offs == [(peer.handle, 7, b"scan", params)]
    assert core.counters()["in_flight"] == 1
    library = MadeUpLibrary()
    reads = Reads(
        library,
        lambda database, version, *, by_name: None,
        ServingSettings(max_key=100, max_value=1 << 20, max_frame=MAX_FRAME, scan_limit=1_000_000),
        node="n",
    )
    reads.published = published
    with pytest.raises(Corrupt, match=r"broken\.gkv"):
        reads.scan(Arguments(b"scan", params))
    assert [(database, name) for database, name, _ in library.reported] == [("db", "v1")]
    assert peer.driver.reply(peer.handle, 7, error_response(7, BadRequest("as told")))
    peer.take()
    assert core.counters()["in_flight"] == core.counters()["held_bytes"] == 0
    other.send(GET)
    assert len(other.answers()) == 1
