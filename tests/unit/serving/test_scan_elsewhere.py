"""Scans with partitions on several nodes: pages from owners that answer, refuse, stay silent or lie."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgpack
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from gossipkv.errors import (
    BadRequest,
    Corrupt,
    GossipKVError,
    NotReady,
    NotServed,
    Overloaded,
    TimedOut,
    TooLarge,
    Unavailable,
    UnknownVersion,
    from_wire,
    to_wire,
)
from gossipkv.keyspace.partitioner import partition
from gossipkv.placement.holders import HolderState
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.serving import _serving
from gossipkv.serving.published import publish
from gossipkv.serving.reads import Reads
from gossipkv.serving.scan import encode_cursor
from gossipkv.serving.scan_elsewhere import MAX_PAGES, REPORT_PERIOD_S, Elsewhere, ScanSource
from gossipkv.settings.serving import ServingSettings
from gossipkv.wire.arguments import Arguments
from gossipkv.wire.results import DeferredResult, NodeAnswer, NotAnswered, NotReached, Packed
from tests.oracle import scan as oracle
from tests.unit.node.made_up_node import MadeUpLibrary
from tests.unit.serving.driven import BuiltVersion, make_version
from tests.world.logs import capture_logs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Value

PARTITIONS = 8
STAGE_MS = 50
REAL_PAGE = _serving.page
RECORDS = {key: b"value of " + key for key in [b"", b"\xff", b"\xff\xff", *(b"key%03d" % n for n in range(300))]}
IDENTITY, NEWER = b"i" * 16, b"n" * 16
ALIVE, SUSPECT, DEAD = HolderState


@dataclass
class Node:
    """A node, its partitions and its behaviour."""

    reads: Reads
    library: MadeUpLibrary
    held: PartitionSet
    state: HolderState = ALIVE
    behaves: Callable[[bytes], Awaitable[bytes | Exception | None]] | None = None
    asked: list[dict[str, Value]] = field(default_factory=list)
    counted: list[tuple[str, bool]] = field(default_factory=list)
    elsewhere: Elsewhere | None = None
    newer: PartitionSet = field(default_factory=lambda: PartitionSet.empty(PARTITIONS))  # Held partitions of v2.


@dataclass
class Sight:
    """The other nodes, as one node knows them."""

    world: World
    own: str

    def sources(self, database: str, version: str, wire_id: bytes) -> Mapping[str, ScanSource]:
        named = {str(number): node for number, node in enumerate(self.world.nodes) if str(number) != self.own}
        held = {name: node.held if wire_id == IDENTITY else node.newer for name, node in named.items()}
        assert (database, version) == ("db", "v2" if wire_id == NEWER else "v1")
        return {name: ScanSource(named[name].state, partitions) for name, partitions in held.items() if partitions}


@dataclass
class World:
    """Nodes `0`, `1`, … with some of RECORDS each."""

    nursery: trio.Nursery
    nodes: list[Node] = field(default_factory=list)
    not_served: list[str] = field(default_factory=list)

    def add(self, whole: BuiltVersion, held: Sequence[int], *, limit: int = 1000, **settings: int) -> Node:
        files = [file if partition in held else None for partition, file in enumerate(whole.files)]
        elsewhere = Elsewhere(
            Sight(self, str(len(self.nodes))).sources,
            self.ask,
            random.Random(len(self.nodes)),
            on_not_served=lambda: self.not_served.append(""),
            whole_ms=100,
            stage_ms=STAGE_MS,
            max_elements=16_384,
            max_frame=1 << 20,
        )
        counted: list[tuple[str, bool]] = []
        library = MadeUpLibrary()
        reads = Reads(
            library,
            lambda database, version, *, by_name: counted.append((f"{database} {version}", by_name)),
            ServingSettings(scan_limit=limit, **settings),
            elsewhere,
            node="n",
        )
        reads.published = publish([(replace(whole, files=files, wire_id=IDENTITY), True)])
        here = PartitionSet.of(PARTITIONS, held)
        self.nodes.append(Node(reads, library, here, counted=counted, elsewhere=elsewhere))
        return self.nodes[-1]

    def ask(
        self, name: str, method: str, params: list[Value], timeout_ms: int, complete: Completion[NodeAnswer]
    ) -> None:
        assert method == "scan"
        assert timeout_ms > 0
        node = self.nodes[int(name)]
        options = params[1]
        assert isinstance(options, dict)
        node.asked.append(options)
        if node.behaves is unconnected:
            complete(NotReached("nobody is"))
        else:
            self.nursery.start_soon(self._answer, node, msgpack.packb(params), complete)

    async def _answer(self, node: Node, params: bytes, complete: Completion[NodeAnswer]) -> None:
        await trio.sleep(0.001)
        answer: bytes | Exception | None
        try:
            result = node.reads.scan(Arguments(b"scan", params))
            assert isinstance(result, Packed), "a second hop"
            answer = result.data
        except GossipKVError as error:
            answer = error
        if node.behaves is not None:
            answer = await node.behaves(answer if isinstance(answer, bytes) else b"\xc0")
        if isinstance(answer, GossipKVError):
            complete(from_wire(*to_wire(answer)))
        else:
            assert not isinstance(answer, Exception)
            complete(NotAnswered("nothing came") if answer is None else NodeAnswer(answer, 1))


async def unconnected(answer: bytes) -> None:
    """Behave as a node without a connection."""


async def silent(answer: bytes) -> None:
    await trio.sleep_forever()


async def lost(answer: bytes) -> None:
    """Lose the connection."""


async def slow(answer: bytes) -> bytes:
    await trio.sleep(3 * STAGE_MS / 2000)
    return answer


async def busy(answer: bytes) -> Exception:
    return Overloaded("no")


async def too_large(answer: bytes) -> Exception:
    """Report a value that is longer than the node sends."""
    return TooLarge("the value is longer than the node may send")


async def elsewhere_now(answer: bytes) -> Exception:
    return NotServed("no")


def liar(lie: Callable[[list[list[bytes]], list[Value]], object]) -> Callable[[bytes], Awaitable[bytes]]:
    """Return an owner whose answer `lie` alters, given its records and the whole answer."""

    async def answer(told: bytes) -> bytes:
        whole = msgpack.unpackb(told)
        lie(whole[0], whole)
        spoilt: bytes = msgpack.packb(whole)
        return spoilt

    return answer


def add_another(records: list[list[bytes]]) -> None:
    """Add a record in the right place, but of a partition that was not asked for."""
    keys = (records[0][0] + bytes([0, n]) for n in range(256))
    foreign = next(key for key in keys if partition("sequins", key, PARTITIONS) == 0)
    records.insert(0 if records[0] > records[-1] else 1, [foreign, b""])


LIES = {
    "order": lambda records, whole: records.reverse(),
    "twice": lambda records, whole: records.insert(1, records[0]),
    "bounds": lambda records, whole: records.append([b"\xff\xff\xff", b""]),
    "many": lambda records, whole: records.extend([b"key3%05d" % n, b""] for n in range(2000)),
    "version": lambda records, whole: whole.__setitem__(2, "v2"),
    "shape": lambda records, whole: records.__setitem__(0, [b"key"]),
    "types": lambda records, whole: records.__setitem__(0, [1, b"value"]),
    "short": lambda records, whole: whole.pop(),
    "cursor": lambda records, whole: whole.__setitem__(1, 7),
    "a cursor that is none": lambda records, whole: whole.__setitem__(1, b"more"),
    "a cursor that does not move": lambda records, whole: whole.__setitem__(1, encode_cursor("v1", records[0][0])),
    "a cursor of another version": lambda records, whole: whole.__setitem__(1, encode_cursor("v2", records[-1][0])),
    "other partitions": lambda records, whole: add_another(records),
    "more of nothing": lambda records, whole: (records.clear(), whole.__setitem__(1, b"more")),
    "map": lambda records, whole: whole.__setitem__(0, {1: 2}),
}


async def ask(node: Node, options: Mapping[str, Value] | None = None) -> list[Value]:
    result = node.reads.scan(Arguments(b"scan", msgpack.packb(["db", dict(options or {})])))
    packed = await result.result() if isinstance(result, DeferredResult) else result
    assert isinstance(packed, Packed)
    found: list[Value] = msgpack.unpackb(packed.data)
    return found


async def answer_or_refusal(node: Node, options: Mapping[str, Value]) -> list[Value]:
    """Return the result of a scan, or the error's code and message and None."""
    try:
        return await ask(node, options)
    except GossipKVError as error:
        return [error.code, error.message, None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> BuiltVersion:
    return make_version(tmp_path_factory.mktemp("whole"), "db", "v1", RECORDS, PARTITIONS)


@pytest.fixture
def world(nursery: trio.Nursery) -> World:
    return World(nursery)


EVERYTHING = [[key, value] for key, value in sorted(RECORDS.items())]

BOUND = st.none() | st.sampled_from([b"", b"key", b"key1", b"key150", b"key2", b"key299\0", b"\xff", b"\xff\xff\xff"])


SPLIT = st.lists(st.sets(st.integers(0, 3), max_size=3), min_size=PARTITIONS, max_size=PARTITIONS)
OPTIONS = st.fixed_dictionaries({"start": BOUND, "end": BOUND, "prefix": BOUND, "reverse": st.booleans()})
SIZES = st.fixed_dictionaries({"limit": st.sampled_from([7, 100, 1000]), "max_frame": st.sampled_from([1 << 20, 1500])})


@given(split=SPLIT, asked=OPTIONS, limits=st.lists(st.integers(1, 400), min_size=1), sizes=SIZES)
def test_pages_join_to_the_whole(
    whole: BuiltVersion, split: list[set[int]], asked: dict[str, Value], limits: list[int], *, sizes: dict[str, int]
) -> None:
    """For any placement, options and next node asked, the pages join to those of one complete version."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            world = World(nursery)
            for number in range(4):  # The first node has all partitions that the others lack.
                held = [p for p, names in enumerate(split) if number in names or (not names and number == 0)]
                world.add(whole, held, **sizes)
            everything = [*sorted(RECORDS.items())]
            wanted = oracle.result(everything, "v1", asked, scan_limit=1000, max_frame=1 << 24)[0]
            options = {**asked}
            found: list[Value] = []
            for turn in range(1000):
                limit = limits[turn % len(limits)]
                records, cursor, version = await ask(world.nodes[turn % 4], {**options, "limit": limit})
                assert isinstance(records, list)
                assert len(records) <= min(limit, sizes["limit"])
                assert version == "v1"
                found += records
                options["cursor"] = cursor
                if cursor is None:
                    break
                assert records
            assert found == wanted
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_what_is_asked_of_an_owner(autojump_clock, whole, world):
    """Few owners are asked, each for its part alone; the scan counts on both nodes and goes no further."""
    asker = world.add(whole, [0, 1])
    few, most = world.add(whole, [2, 3, 4]), world.add(whole, [2, 3, 4, 5, 6, 7])
    assert await ask(asker) == [EVERYTHING, None, "v1"]
    assert few.asked == []
    [asked] = most.asked
    assert {name: asked[name] for name in ("forwarded", "identity", "partitions", "max_frame")} == {
        "forwarded": True, "identity": IDENTITY, "partitions": b"\xfc", "max_frame": 1 << 20,
    }  # fmt: skip
    assert asker.counted == most.counted == [("db v1", False)]
    await ask(asker, {"cursor": encode_cursor("v1", b"key")})
    assert asker.counted[1:] == [("db v1", True)]


async def test_a_whole_copy_asks_nobody(autojump_clock, whole, world):
    asker, other = world.add(whole, range(PARTITIONS)), world.add(whole, range(PARTITIONS))
    assert await ask(asker, {"local": True}) == await ask(asker) == [EVERYTHING, None, "v1"]
    assert other.asked == []


async def test_local_is_never_forwarded(autojump_clock, whole, world):
    """The refusal names the active version."""
    asker = world.add(whole, [0, 1])
    world.add(whole, range(PARTITIONS))
    with pytest.raises(NotServed) as caught:
        await ask(asker, {"local": True})
    assert caught.value.details["active"] == "v1"


@pytest.mark.parametrize("behaves", [unconnected, lost, silent, slow, busy, elsewhere_now, *map(liar, LIES.values())])
@pytest.mark.parametrize("reverse", [False, True])
async def test_another_owner_is_asked(autojump_clock, whole, world, behaves, reverse):
    """Another owner is asked for these partitions alone; a slow, busy or lying owner is asked last from then on."""
    asker = world.add(whole, [0, 1])
    bad, good = world.add(whole, [2, 3, 4, 5, 6]), world.add(whole, [7])
    spare = world.add(whole, range(PARTITIONS))
    spare.state = SUSPECT
    bad.behaves = behaves
    wanted = EVERYTHING[::-1] if reverse else EVERYTHING
    assert await ask(asker, {"reverse": reverse, "start": b"", "end": b"\xff\xff\xff"}) == [wanted, None, "v1"]
    assert [len(node.asked) for node in (bad, good, spare)] == [1, 1, 1]
    assert spare.asked[0]["partitions"] == b"\x7c"
    again = {"reverse": reverse, "start": b"", "end": b"\xff\xff\xff"}
    assert await ask(asker, again) == [wanted, None, "v1"]
    assert bool(world.not_served) is (behaves is elsewhere_now)
    assert len(bad.asked) == (1 if behaves not in (unconnected, lost, elsewhere_now) else 2)


async def test_the_first_answer_counts(autojump_clock, whole, world):
    """The silent owner's answer counts if it comes before that of the owners asked instead."""
    asker, first, second = world.add(whole, [0]), world.add(whole, range(8)), world.add(whole, range(1, 8))
    first.behaves, second.behaves = slow, silent
    second.state = SUSPECT
    began_s = trio.current_time()
    assert (await ask(asker))[0] == EVERYTHING
    assert trio.current_time() - began_s == pytest.approx(1.5 * STAGE_MS / 1000, abs=0.002)
    assert len(second.asked) == 1


@pytest.mark.parametrize("case", [
    (silent, TimedOut, "silent"), (lost, Unavailable, "lost"), (busy, Overloaded, "OVERLOADED"),
    (elsewhere_now, Unavailable, "NOT_SERVED"), (unconnected, Unavailable, "not connected"),
    (liar(LIES["order"]), Unavailable, "nonsense"),
])  # fmt: skip
async def test_nobody_is_left(autojump_clock, whole, world, case):
    """The error comes at the time limit of node or request, and lists the asked nodes with their failures."""
    behaves, error, word = case
    asker, other = world.add(whole, [0, 1, 7]), world.add(whole, [2, 3, 4, 5, 6])
    other.behaves = behaves
    began_s = trio.current_time()
    with pytest.raises(error, match=rf"partitions 2-6 of db v1: 1 \({word}\)") as caught:
        await ask(asker, {"timeout_ms": 400})
    assert caught.value.details["asked"] == [["1", word]]
    assert trio.current_time() - began_s == pytest.approx(0.4 if error is TimedOut else 0.1, abs=0.001)
    assert len(other.asked) == 1 if behaves is silent else 2 < len(other.asked) < 20


async def test_nobody_is_known(autojump_clock, whole, world):
    """An owner may appear until the time limit."""
    asker = world.add(whole, [0, 1])
    with pytest.raises(Unavailable, match="no node is known to have the data"):
        await ask(asker)
    late = world.add(whole, [])
    world.nursery.start_soon(come, world, late, whole)
    assert (await ask(asker))[0] == EVERYTHING


async def come(world: World, late: Node, whole: BuiltVersion) -> None:
    await trio.sleep(0.05)
    late.reads.published = publish([(replace(whole, wire_id=IDENTITY), True)])
    late.held = PartitionSet.whole(PARTITIONS)


async def test_the_owner_checks(autojump_clock, whole, world):
    """The owner checks identity and partitions, and also answers from a version that has not passed."""
    owner = world.add(whole, [0, 1, 2])
    owner.reads.published = publish([(replace(whole, files=[*whole.files[:3], *[None] * 5], wire_id=IDENTITY,
                                              passed=False), False)])  # fmt: skip
    right: dict[str, Value] = {"forwarded": True, "identity": IDENTITY, "partitions": b"\x07", "start": b"k" * 65_536}
    assert (await ask(owner, right))[2] == "v1"
    with pytest.raises(TooLarge, match="the same max_frame"):
        await ask(owner, {**right, "max_frame": 1})
    for spoilt in ({"identity": b"x" * 16}, {"partitions": b"\x0f"}):
        assert (await answer_or_refusal(owner, {**right, **spoilt}))[0] == "NOT_SERVED"
    for wrong in (
        {"identity": None}, {"forwarded": None}, {"partitions": None}, {"partitions": b"\xff\xff"},
        {"cursor": encode_cursor("v1", b"a")}, {"version": "v1"}, {"partitions": b""},
    ):  # fmt: skip
        with pytest.raises(BadRequest):
            await ask(owner, {**right, **wrong})


async def test_damage_here_is_asked_for_elsewhere(autojump_clock, whole, world, monkeypatch):
    """Damage is reported and the client gets its page from another owner; without one it gets CORRUPT."""
    asker, other = world.add(whole, [0, 1, 2, 3]), world.add(whole, range(4, 8))
    damaged = asker.reads.published.databases["db"].versions[0].files[1]
    monkeypatch.setattr("gossipkv.serving.scan._serving.page", failing_on(damaged))
    with pytest.raises(GossipKVError, match="broken"):
        await ask(asker)
    assert len(asker.library.reported) == 1
    spare = world.add(whole, range(4))
    asker.library.reported.clear()
    monkeypatch.setattr("gossipkv.serving.scan._serving.page", failing_on(damaged, times=1))
    assert (await ask(asker))[0] == EVERYTHING
    assert len(asker.library.reported) == 1
    assert [len(node.asked) for node in (other, spare)] == [1, 1]
    complete = world.add(whole, range(8))
    monkeypatch.setattr("gossipkv.serving.scan._serving.page", failing_on(damaged, times=2))
    assert (await ask(complete))[0] == EVERYTHING
    assert len(complete.library.reported) == 1


def failing_on(damaged: object, times: int = 1000) -> Callable[..., tuple[bytes, bytes | None]]:
    """Return the real page function, which finds damage in a file `times` times."""
    left = [times]

    def page(files: list[object], *rest: object) -> tuple[bytes, bytes | None]:
        if damaged in files and left[0] > 0:
            left[0] -= 1
            raise Corrupt("a.gkv", 1, "broken")
        found: tuple[bytes, bytes | None] = REAL_PAGE(files, *rest)
        return found

    return page


async def test_only_some_are_gathered_at_the_same_time(autojump_clock, whole, world):
    """Other scans wait for their turn within their time limit."""
    asker, other = world.add(whole, [0]), world.add(whole, range(8))
    other.behaves = silent
    ended: list[str] = []

    async def scan() -> None:
        try:
            await ask(asker, {"timeout_ms": 500})
        except GossipKVError as error:
            ended.append(error.code)

    async with trio.open_nursery() as nursery:
        for _ in range(MAX_PAGES + 3):
            nursery.start_soon(scan)
    assert sorted(ended) == ["OVERLOADED"] * 3 + ["TIMEOUT"] * MAX_PAGES


async def test_a_version_that_goes_meanwhile(autojump_clock, whole, world):
    """A different version of the same name is never merged, while a scan waits or between rounds."""
    asker, other = world.add(whole, [0]), world.add(whole, range(8))
    another = replace(whole, wire_id=b"x" * 16)
    waiting = asker.reads.scan(Arguments(b"scan", msgpack.packb(["db"])))
    assert isinstance(waiting, DeferredResult)
    asker.reads.published = publish([(another, True)])
    packed = await waiting.result()
    assert isinstance(packed, Packed)
    assert msgpack.unpackb(packed.data) == [EVERYTHING, None, "v1"]
    assert other.asked == []
    asker.reads.published = publish([(replace(another, files=[*whole.files[:7], None]), True)])
    with pytest.raises(Unavailable, match="partitions 7 of db v1: no node is known"):
        await ask(asker)
    waiting = asker.reads.scan(Arguments(b"scan", msgpack.packb(["db", {"version": "v1"}])))
    assert isinstance(waiting, DeferredResult)
    asker.reads.published = publish([(replace(another, name="v2"), True)])
    with pytest.raises(UnknownVersion):
        await waiting.result()


async def test_a_value_that_an_owner_does_not_send(autojump_clock, whole, world):
    """The owner's error is the answer at once, since other owners would give it too."""
    asker, other = world.add(whole, [0]), world.add(whole, range(8))
    world.add(whole, range(8)).state = SUSPECT
    other.behaves = too_large
    with pytest.raises(TooLarge, match="longer than"):
        await ask(asker)
    assert trio.current_time() < STAGE_MS / 1000
    assert sum(len(node.asked) for node in world.nodes) == 1


async def test_lies_are_counted_and_said(autojump_clock, whole, world):
    """Each lie counts; the log names node and reason, and the count once in a while."""
    asker, other = world.add(whole, [0]), world.add(whole, range(1, 8))
    everything = msgpack.packb([[[key, value] for key, value in sorted(RECORDS.items())], None, "v1"])

    async def all_of_it(answer: bytes) -> bytes:
        return everything

    other.behaves = all_of_it
    with capture_logs() as lines:
        with pytest.raises(Unavailable, match=r"1 \(nonsense\)"):
            await ask(asker)
        lies = asker.elsewhere.counters()["scan_bad_answers"]
        assert lies == len(other.asked) > 2
        await trio.sleep(REPORT_PERIOD_S)
        with pytest.raises(Unavailable):
            await ask(asker)
    said = [(line["event"], line["node"], line["count"]) for line in lines]
    assert said == [("scan_answer_refused", "1", 1), ("scan_answer_refused", "1", lies)]
    assert lines[0]["reason"] == "the answer has a key of a partition that was not requested"


async def test_what_is_counted(autojump_clock, whole, world):
    """Pages, questions, silences and unanswered scans are counted."""
    asker, mute, other = world.add(whole, [0]), world.add(whole, range(8)), world.add(whole, [1, 2, 3])
    mute.behaves = silent
    with pytest.raises(TimedOut):
        await ask(asker)
    assert asker.elsewhere.counters() == {
        "scans_gathered": 1, "scan_questions": 2, "scan_silences": 1, "scan_bad_answers": 0, "scans_unanswered": 1,
    }  # fmt: skip
    mute.behaves = None
    assert (await ask(asker))[0] == EVERYTHING
    assert asker.elsewhere.counters() == {
        "scans_gathered": 2, "scan_questions": 4, "scan_silences": 1, "scan_bad_answers": 0, "scans_unanswered": 1,
    }  # fmt: skip
    assert len(other.asked) == 2


@pytest.mark.parametrize("first", [{}, {"min_version": "v1"}, {"limit": 7, "reverse": True}])
async def test_a_switch_under_a_first_page(autojump_clock, whole, world, first):
    """A request without a version moves to the new version with its owners; later pages keep their version."""
    asker, other = world.add(whole, [0]), world.add(whole, range(8))
    behind = (await ask(asker, {"limit": 10}))[1]
    other.behaves = elsewhere_now
    world.nursery.start_soon(switch, asker, other, whole)
    told = await answer_or_refusal(asker, first)
    assert (told[0], told[2]) == ((EVERYTHING[::-1][:7] if "limit" in first else EVERYTHING), "v2")
    assert trio.current_time() < 0.1
    for pinned in ({"cursor": behind}, {"version": "v1"}):
        assert await answer_or_refusal(asker, pinned) == [
            "UNAVAILABLE", "no node has answered for partitions 1-7 of db v1: 1 (NOT_SERVED)", None,
        ]  # fmt: skip


async def switch(asker: Node, other: Node, whole: BuiltVersion) -> None:
    """Make another version active on both nodes; the asker keeps the first one, too."""
    await trio.sleep(0.03)
    older = replace(whole, files=[whole.files[0], *[None] * 7], wire_id=IDENTITY)
    newer = replace(whole, name="v2", wire_id=NEWER)
    asker.reads.published = publish([(older, False), (replace(newer, files=[None] * 8), True)])
    other.reads.published = publish([(newer, True)])
    other.newer, other.behaves = PartitionSet.whole(PARTITIONS), None


async def test_what_comes_here_meanwhile(autojump_clock, whole, world):
    """A partition that no owner answers for is read here once it has come."""
    asker, other = world.add(whole, [0, 1]), world.add(whole, range(2, 8))
    other.behaves = lost
    world.nursery.start_soon(come, world, asker, whole)
    assert await ask(asker, {"version": "v1"}) == [EVERYTHING, None, "v1"]
    assert 0.04 < trio.current_time() < 0.1


@pytest.mark.parametrize("split", [[0, 1], [], range(8)])
async def test_a_version_that_has_not_passed_here(autojump_clock, whole, world, split):
    """A request with that minimal version and its cursors are answered by a member; a request by name is not."""
    asker, other = world.add(whole, split), world.add(whole, range(8))
    here = replace(whole, files=[file if p in split else None for p, file in enumerate(whole.files)], wire_id=IDENTITY)
    asker.reads.published = publish([(replace(here, passed=False, active_elsewhere=True), False)])
    records, cursor, version = await ask(asker, {"min_version": "v1", "limit": 100})
    assert (records, version) == (EVERYTHING[:100], "v1")
    assert cursor == (await ask(other, {"limit": 100}))[1]
    assert await ask(asker, {"cursor": cursor}) == [EVERYTHING[100:], None, "v1"]
    for refused in ({}, {"version": "v1"}, {"min_version": "v2"}):
        with pytest.raises(NotReady):
            await ask(asker, refused)
    asker.reads.published = publish([(replace(here, passed=False), False)])
    for refused in ({"min_version": "v1"}, {"cursor": cursor}):
        with pytest.raises(NotReady):
            await ask(asker, refused)


async def test_no_time_at_all(autojump_clock, whole, world):
    asker = world.add(whole, [0])
    world.add(whole, range(8))
    with pytest.raises(TimedOut, match=r"1 \(asked\)"):
        await ask(asker, {"timeout_ms": 0})
