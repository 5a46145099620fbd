"""Claims of shard ids in linked trees."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import TooLarge
from gossipkv.gossip.member import MemberState
from gossipkv.gossip.packets import messages
from gossipkv.gossip.tree.limits import TreeLimits
from gossipkv.node.gossip import ClaimsInTree
from gossipkv.placement.shard_claim import ClaimPlace, Firmness, ShardClaim, place_of
from gossipkv.placement.shard_claim import _read as read_claim
from tests.unit.gossip.tree.linked import Link, Node, address_of, member

SETTLE_MS = 10_000


class Claimer:
    def __init__(
        self,
        link: Link,
        name: str,
        *,
        configured: str | None = None,
        remembered: str | None = None,
        uuid: bytes | None = None,
        limits: TreeLimits | None = None,
        expected: int = 0,
    ) -> None:
        self.node = link.node(name, epoch=2 if remembered else 1, limits=limits)
        self.claim = ShardClaim(
            ClaimsInTree(self.node.tree),
            name=name,
            uuid=uuid or name.encode(),
            address=address_of(name),
            configured=configured,
            remembered=remembered,
            settle_ms=SETTLE_MS,
            expected=expected,
        )
        self.remembered = remembered
        self.watch = self.node.tree.watch("nodes")

    def step(self, *, isolated: bool = False) -> None:
        """Step as the node does after each change and each timeout."""
        firm = self.claim.step(now_ms=self.node.link.now_ms, isolated=isolated)
        if firm is not None:
            self.remembered = firm


def cluster(link: Link, *names: str) -> list[Claimer]:
    """Return nodes that know each other and have not claimed."""
    made = [Claimer(link, name) for name in names]
    meet(*made)
    return made


def meet(*claimers: Claimer) -> None:
    for one in claimers:
        one.node.knows(*(other.node for other in claimers if other is not one))


def spread(claimers: list[Claimer], ms: int = SETTLE_MS + 8000) -> None:
    """Pass time in steps of 200 ms; each node acts as soon as it hears news."""
    link = claimers[0].node.link
    for _ in range(ms // 200):
        link.pass_time(200)
        for one in claimers:
            for other in link.random.sample(claimers, min(3, len(claimers))):
                if other is not one:
                    one.node.tell(other.node)
        link.run()
        for one in claimers:
            due = one.claim.wakes_at_ms
            if one.watch.changed or (due is not None and due <= link.now_ms):
                one.watch.look()
                one.step()


def ids(claimers: list[Claimer]) -> list[str]:
    return sorted((one.claim.shard_id or "" for one in claimers), key=int)


def put(reader: Node, name: str, shard_id: str, state: MemberState = MemberState.ALIVE, **value: object) -> None:
    """Publish the claim of another node at a reader."""
    other = Link().node(name)
    packed = value.pop("packed", None)
    other.tree.publish(
        f"nodes/{shard_id}@{address_of(name)}", packed if isinstance(packed, bytes) else msgpack.packb(value)
    )
    reader.hear_record(member(name), now_ms=0)
    for part in other.tree.rumours.take(1000, 1):
        for delta in messages.read_parts(part, 0):
            assert isinstance(delta, messages.Delta)
            reader.tree.apply(delta)
    reader.hear_record(member(name, state=state), now_ms=0)


def test_the_smallest_free_number() -> None:
    """sequins#138: of [1, 1, 2] the free number is 3; shared ids are legal and count once."""
    link = Link()
    me = Claimer(link, "me")
    for name, shard_id in (("a", "1"), ("b", "1"), ("c", "2"), ("d", "5"), ("e", "rack-7")):
        put(me.node, name, shard_id, claim="configured", count=0, uuid=name.encode())
    me.step()
    assert (me.claim.shard_id, me.claim.firmness) == ("3", Firmness.PROVISIONAL)
    assert me.node.tree.children("nodes").count(f"3@{address_of('me')}") == 1
    (entry,) = [found for found in me.node.tree.entries("nodes", now_ms=0) if found.owner == "me"]
    assert msgpack.unpackb(entry.value) == {"claim": "provisional", "count": 1, "uuid": b"me"}


@pytest.mark.parametrize("state", [MemberState.SUSPECT, MemberState.DEAD, MemberState.LEFT])
def test_ids_of_the_absent_are_not_free(state: MemberState) -> None:
    """An absent node may come back with its data, until it is forgotten."""
    me = Claimer(Link(), "me")
    put(me.node, "a", "1", state, claim="confirmed", count=1, uuid=b"a")
    me.step()
    assert me.claim.shard_id == "2"
    fresh = Claimer(Link(), "me")
    put(fresh.node, "a", "1", MemberState.DEAD, claim="confirmed", count=1, uuid=b"a")
    fresh.node.tree.forget(member("a").id)
    fresh.step()
    assert fresh.claim.shard_id == "1"


def test_ids_of_the_dead_are_not_free_for_later_members() -> None:
    """quickwit#4562: a new node learns the keys of dead members, although no listing shows them."""
    link = Link()
    (one,) = cluster(link, "one")
    one.step()
    put(one.node, "a", "2", MemberState.DEAD, claim="confirmed", count=1, uuid=b"a")
    late = Claimer(link, "late")
    late.node.exchange._request(one.node.me.address, late.node.exchange.request(now_ms=link.now_ms))
    link.run()
    late.step()
    assert late.claim.shard_id == "3"
    assert late.node.tree.children("nodes") == [f"1@{address_of('one')}", f"3@{address_of('late')}"]


def test_a_claim_is_firm_when_it_has_stood() -> None:
    """The claim must stand for the settle time in contact with others: isolation does not count."""
    link = Link()
    me = Claimer(link, "me")
    me.step()
    assert me.claim.wakes_at_ms == link.now_ms + SETTLE_MS
    link.pass_time(SETTLE_MS - 1)
    me.step()
    assert me.claim.firmness is Firmness.PROVISIONAL
    me.step(isolated=True)
    assert me.claim.wakes_at_ms is None
    link.pass_time(5 * SETTLE_MS)
    me.step(isolated=True)
    assert me.remembered is None
    me.step()
    assert me.claim.wakes_at_ms == link.now_ms + SETTLE_MS
    link.pass_time(SETTLE_MS)
    me.step()
    assert (me.claim.firmness, me.remembered, me.claim.wakes_at_ms) == (Firmness.CONFIRMED, "1", None)
    me.step()
    assert me.node.tree.children("nodes") == [f"1@{address_of('me')}"]


@pytest.mark.parametrize("case", ["all", "one fewer", "one id twice", "mine twice", "one is dead", "isolated"])
def test_a_claim_is_firm_at_once_where_nobody_is_left_to_object(case: str) -> None:
    """All expected nodes are heard, and each claims an id of its own."""
    me = Claimer(Link(), "me", expected=4 if case == "one fewer" else 3)
    me.step()
    put(me.node, "a", "2", claim="provisional", count=1, uuid=b"a")
    second = {"one id twice": "2", "mine twice": "1"}.get(case, "3")
    state = MemberState.DEAD if case == "one is dead" else MemberState.ALIVE
    put(me.node, "z", second, state, claim="provisional", count=2, uuid=b"z")
    me.step(isolated=case == "isolated")
    assert (me.claim.shard_id, me.remembered) == ("1", "1" if case == "all" else None)


def test_who_was_isolated_hears_objections_first() -> None:
    link = Link()
    me = Claimer(link, "me")
    me.step(isolated=True)
    link.pass_time(SETTLE_MS)
    me.step()
    assert (me.claim.firmness, me.remembered) == (Firmness.PROVISIONAL, None)
    assert me.claim.wakes_at_ms == link.now_ms + SETTLE_MS
    link.pass_time(SETTLE_MS - 1)
    put(me.node, "other", "1", claim="provisional", count=0, uuid=b"a")
    me.step()
    assert (me.claim.shard_id, me.remembered) == ("2", None)


@pytest.mark.parametrize(
    ("mine", "theirs", "keeps"),
    [
        ("provisional", ("provisional", 1, b"a"), False),
        ("provisional", ("provisional", 1, b"z"), True),
        ("provisional", ("provisional", 2, b"a"), True),
        ("provisional", ("provisional", 0, b"z"), False),
        ("provisional", ("confirmed", 9, b"z"), False),
        ("confirmed", ("provisional", 0, b"a"), True),
        ("confirmed", ("confirmed", 1, b"a"), False),
        ("confirmed", ("confirmed", 1, b"z"), True),
        ("confirmed", ("configured", 0, b"z"), False),
        ("confirmed", ("confirmed", 1, b"me"), True),
    ],
)
def test_who_keeps_an_id(mine: str, theirs: tuple[str, int, bytes], keeps: bool) -> None:
    """Order: configured, confirmed, provisional; then the smaller (count, uuid, name)."""
    link = Link()
    me = Claimer(link, "me")
    me.step()
    if mine == "confirmed":
        link.pass_time(SETTLE_MS)
        me.step()
    claim, count, uuid = theirs
    put(me.node, "other", "1", claim=claim, count=count, uuid=uuid)
    me.step()
    assert (me.claim.shard_id == "1") is keeps
    if not keeps:
        assert (me.claim.shard_id, me.claim.firmness) == ("2", Firmness.PROVISIONAL)
        (entry,) = [found for found in me.node.tree.entries("nodes", now_ms=0) if found.owner == "me"]
        assert msgpack.unpackb(entry.value)["count"] == 2


def test_the_loser_goes_on_publishing() -> None:
    """Only the id is withdrawn: the winner may have nothing yet (hazard 24)."""
    link = Link()
    me = Claimer(link, "me")
    me.step()
    me.node.tree.publish("partitions/geo/1/00001@me", b"x")
    watch = me.node.tree.watch("partitions")
    put(me.node, "other", "1", claim="confirmed", count=1, uuid=b"a")
    me.step()
    assert me.claim.shard_id == "2"
    assert me.node.tree.children("partitions/geo/1") == ["00001@me"]
    assert not watch.changed


def test_a_loser_whose_branch_is_full_picks_again() -> None:
    """The new claim replaces the old one in the branch."""
    link = Link()
    me = Claimer(link, "zoe")
    me.step()
    me.node.tree.limits = TreeLimits(max_branch_bytes=me.node.tree.size_bytes)
    with pytest.raises(TooLarge):
        me.node.tree.publish("partitions/1")
    put(me.node, "a", "1", claim="confirmed", count=1, uuid=b"a")
    me.step()
    assert me.claim.shard_id == "2"
    assert [path for path in me.node.tree.published() if path.startswith("nodes/")] == [f"nodes/2@{address_of('zoe')}"]


def test_what_a_newer_version_says_takes_its_id() -> None:
    """An unreadable claim keeps its number taken and does not displace another claim."""
    me = Claimer(Link(), "me")
    put(me.node, "a", "1", claim="whatever", count=1, uuid=b"a")
    put(me.node, "b", "2")
    me.step()
    assert me.claim.shard_id == "3"
    put(me.node, "c", "3", claim=[1], count="x")
    me.step()
    assert me.claim.shard_id == "3"


CLAIM = {"claim": "confirmed", "count": 1, "uuid": b"a"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": float("inf")}, {"count": float("nan")}, {"count": None}, {"uuid": 1 << 63}, {"uuid": 1 << 62},
        {"uuid": "a"}, {"uuid": [1]}, {"claim": {}}, {"claim": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_claim_of_other_types_takes_its_id_and_harms_nobody(wrong: dict[str, object]) -> None:
    """A peer may pack anything into a claim, including numbers that would ask for memory."""
    me = Claimer(Link(), "me")
    put(me.node, "a", "1", **{**CLAIM, **wrong})
    me.step()
    assert me.claim.shard_id == "2"


def test_a_claim_that_is_no_map_takes_its_id() -> None:
    for value in (
        b"",
        b"\xc1",
        b"\x91" * 200,
        msgpack.packb([1]),
        msgpack.packb({1: 2}),
        b"\xd6\xff1234",
        b"\xc7\x05\xff12345",
    ):
        me = Claimer(Link(), "me")
        put(me.node, "a", "1", packed=value)
        me.step()
        assert me.claim.shard_id == "2", value


_SAID = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=9)
    | st.binary(),
    lambda inner: st.binary() | st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.binary(max_size=200) | st.fixed_dictionaries(dict.fromkeys(CLAIM, _SAID)).map(msgpack.packb))
def test_any_bytes_are_a_claim_or_none(value: bytes) -> None:
    """Reading raises nothing, and claims can be compared."""
    claimant = read_claim(value, "a")
    assert claimant is None or claimant <= claimant._replace(picks=claimant.picks + 1, uuid=claimant.uuid + b"a")


@pytest.mark.parametrize("configured", [None, "west-1"])
def test_a_full_branch_puts_a_claim_off(configured: str | None) -> None:
    """The node goes on without an id, limits its attempts, and claims when there is room."""
    link = Link()
    me = Claimer(link, "me", configured=configured, limits=TreeLimits(max_branch_bytes=3500))
    me.node.tree.publish("partitions/1", bytes(3000))
    me.step()
    assert (me.claim.shard_id, me.remembered) == (None, None)
    assert me.claim.counters["claim_refused"] == 1
    assert me.claim.wakes_at_ms == link.now_ms + SETTLE_MS
    me.step()
    assert me.claim.counters["claim_refused"] == 1
    assert list(me.node.tree.published()) == ["partitions/1"]
    me.node.tree.withdraw("partitions/1")
    link.pass_time(SETTLE_MS)
    me.step()
    assert me.claim.shard_id == (configured or "1")
    link.pass_time(SETTLE_MS)
    me.step()
    assert me.remembered == (configured or "1")


def test_a_claim_that_somebody_else_took_back_is_caught() -> None:
    """Otherwise a later loss would withdraw a key that is not published."""
    me = Claimer(Link(), "me")
    me.step()
    me.node.tree.withdraw(f"nodes/1@{address_of('me')}")
    put(me.node, "a", "1", claim="confirmed", count=1, uuid=b"a")
    with pytest.raises(AssertionError):
        me.step()


def test_configured_ids_are_shared_and_never_given_up() -> None:
    """Two nodes share the id, and both claims are firm at once."""
    link = Link()
    claimers = [Claimer(link, name, configured="west-1") for name in ("a", "b")]
    meet(*claimers)
    for one in claimers:
        one.step()
    spread(claimers)
    assert [one.claim.shard_id for one in claimers] == ["west-1", "west-1"]
    assert [one.remembered for one in claimers] == ["west-1", "west-1"]
    assert len(claimers[0].node.tree.children("nodes")) == 2


def test_a_restart_claims_what_it_remembers() -> None:
    """The restarted node wins over new nodes, but not over a claim that became firm meanwhile."""
    link = Link()
    old, new = Claimer(link, "z-old", remembered="1"), Claimer(link, "a-new")
    meet(old, new)
    new.step()
    old.step()
    assert (new.claim.shard_id, old.claim.shard_id) == ("1", "1")
    spread([old, new])
    assert (new.remembered, old.remembered) == ("2", "1")
    late = Claimer(link, "late", remembered="2")
    meet(old, new, late)
    link.settle()
    late.step()
    assert late.claim.shard_id == "3"


def test_a_copied_data_directory_under_another_name() -> None:
    """Both remember the same id and uuid: one keeps the id, the other takes another."""
    link = Link()
    both = [Claimer(link, name, remembered="1", uuid=b"copied") for name in ("one", "two")]
    meet(*both)
    for claimer in both:
        claimer.step()
    spread(both)
    assert [claimer.remembered for claimer in both] == ["1", "2"]


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_two_at_the_same_instant(first: int) -> None:
    """sequins#107, #112, #127: two hundred times without a lock, both get one of the two smallest ids for good."""
    for seed in range(first, first + 50):
        link = Link(seed)
        link.shuffled = True
        link.loss = 0.1
        claimers = cluster(link, f"x{seed}", f"y{seed * 7}")
        for one in claimers:
            one.step()
        spread(claimers)
        assert ids(claimers) == ["1", "2"]
        assert all(one.claim.firmness is Firmness.CONFIRMED for one in claimers)


@pytest.mark.parametrize("seed", range(20))
def test_across_a_partition(seed: int) -> None:
    """Both sides confirm; after healing exactly one of two equal claims moves, and no other."""
    link = Link(seed)
    old = cluster(link, *(f"old{number}" for number in range(4)))
    for one in old:
        one.step()
    spread(old)
    sides = old[:2], old[2:]
    halves = [[*side, Claimer(link, f"new{seed}{at}")] for at, side in enumerate(sides)]
    for half in halves:
        meet(*half)
    link.passes = lambda one, two: any({one, two} <= {claimer.node for claimer in half} for half in halves)
    for half in halves:
        link.settle([claimer.node for claimer in half])
        half[-1].step()
        spread(half)
    everyone = [*halves[0], *halves[1]]
    assert ids(everyone) == ["1", "2", "3", "4", "5", "5"]
    before = {one: one.claim.shard_id for one in everyone}
    link.passes = lambda one, two: True
    meet(*everyone)
    spread(everyone)
    link.settle()
    spread(everyone)
    assert ids(everyone) == ["1", "2", "3", "4", "5", "6"]
    moved = [one for one in everyone if before[one] != one.claim.shard_id]
    assert moved == [max(halves[0][-1], halves[1][-1], key=lambda one: one.node.me.name.encode())]


def test_who_is_about_to_leave_says_so_beside_its_claim():
    """The mark survives a new pick; a malformed mark does not count as leaving."""
    link = Link()
    (claimer,) = cluster(link, "a")
    claimer.step()
    (entry,) = claimer.node.tree.entries("nodes", now_ms=0, all=True)
    assert place_of(entry.name, entry.value) == ClaimPlace("1")
    claimer.claim.leave()
    (entry,) = claimer.node.tree.entries("nodes", now_ms=0, all=True)
    assert place_of(entry.name, entry.value) == ClaimPlace("1", is_leaving=True)
    assert read_claim(entry.value, "a") is not None
    odd = msgpack.packb(msgpack.unpackb(entry.value) | {"leaving": 1})
    assert place_of(entry.name, odd) == ClaimPlace("1")
