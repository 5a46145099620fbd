"""The list of ids from which a ring is made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset.cluster.convergence import Convergence
from gossipkv.dataset.cluster.members import LIVE, Membership, MemberStanding
from tests.unit.dataset.cluster.scene import HOUR_MS, SETTLE_MS, member


class Listing:
    def __init__(self, *, expects_others=True, firm=True, kept=None, expected=0):
        self.now_ms = 500
        self.membership = Membership(
            member("a", "1", firm=firm), expects_others=expects_others, retire_max_ms=HOUR_MS, now_ms=500
        )
        self.convergence = Convergence(self.membership, settle_ms=SETTLE_MS, now_ms=500, kept=kept, expected=expected)

    def tell(self, *told):
        for each in told:
            self.membership.tell(each, now_ms=self.now_ms)
        return self.after(0)

    def after(self, ms):
        self.now_ms += ms
        self.convergence.step(self.now_ms)
        return self.convergence.ids

    def isolate(self, *, isolated):
        self.membership.isolate(isolated=isolated, now_ms=self.now_ms)
        return self.after(0)


def test_a_list_counts_when_it_was_still():
    """Each newcomer restarts the wait; ids are sorted as strings, without repetition."""
    listing = Listing()
    assert listing.tell(member("b", "10")) is None
    assert listing.after(SETTLE_MS - 1) is None
    assert listing.tell(member("c", "2"), member("d", "2")) is None
    assert listing.convergence.wakes_at_ms == listing.now_ms + SETTLE_MS
    assert listing.after(SETTLE_MS - 1) is None
    assert listing.after(1) == ("1", "10", "2")
    assert listing.convergence.wakes_at_ms is None


def test_a_claim_must_be_firm_and_that_begins_no_wait():
    """A provisional claim is awaited; its confirmation changes no list."""
    listing = Listing()
    listing.tell(member("b", "2", firm=False))
    assert listing.after(5 * SETTLE_MS) is None
    assert listing.tell(member("b", "2")) == ("1", "2")


def test_all_who_are_expected_wait_for_nothing():
    """A missing member, a provisional claim and a dead member require a stable list; later growth waits as usual."""
    listing = Listing(expected=3)
    assert listing.tell(member("b", "2")) is None
    assert listing.tell(member("c", "3", firm=False)) is None
    assert listing.tell(member("c", "3", state=MemberStanding.DEAD)) is None
    assert not listing.convergence.has_settled
    assert listing.tell(member("c", "3")) == ("1", "2", "3")
    assert listing.convergence.has_settled
    assert listing.tell(member("d", "4")) == ("1", "2", "3")
    assert listing.after(SETTLE_MS) == ("1", "2", "3", "4")
    fewer = Listing(expected=3)
    fewer.tell(member("b", "2"))
    assert fewer.after(SETTLE_MS) == ("1", "2")
    again = Listing(expected=2, kept={"a": "1", "b": "2", "c": "3"})
    assert again.tell(member("b", "2")) == ("1", "2", "3")
    assert again.after(SETTLE_MS) == ("1", "2"), "c was waited for"


def test_the_last_still_list_is_used_meanwhile():
    """A newcomer enters and a dead member leaves when the list is stable again; until then the old list counts."""
    listing = Listing()
    listing.tell(member("b", "2"))
    assert listing.after(SETTLE_MS) == ("1", "2")
    assert listing.tell(member("c", "3", firm=False)) == ("1", "2")
    assert listing.after(SETTLE_MS) == ("1", "2")
    assert listing.tell(member("c", "3")) == ("1", "2", "3")
    assert listing.tell(member("b", "2", state=MemberStanding.SUSPECT)) == ("1", "2", "3")
    assert listing.after(SETTLE_MS) == ("1", "2", "3")
    assert listing.tell(member("b", "2", state=MemberStanding.DEAD)) == ("1", "2", "3")
    assert listing.after(SETTLE_MS) == ("1", "3")


def test_a_restart_begins_with_what_it_had():
    """The kept list counts once any member is heard; members that are gone leave in time."""
    listing = Listing(kept={"a": "1", "b": "2", "c": "3"})
    assert listing.after(HOUR_MS - 1_000) is None, "nobody is heard"
    assert listing.tell(member("b", "2")._replace(shard_id=None, is_firm=False)) == ("1", "2", "3")
    assert listing.after(SETTLE_MS) == ("1", "2")
    assert listing.convergence.claims == {"a": "1", "b": "2"}
    assert not listing.convergence.has_settled, "b has not said where it is"
    listing.tell(member("b", "2"))
    assert listing.convergence.has_settled


def test_who_is_forgotten_keeps_no_claim():
    """The kept ring does not grow with each new name over the years."""
    listing = Listing()
    for year in range(5):
        listing.tell(member(f"b{year}", "2"))
        assert listing.after(SETTLE_MS) == ("1", "2")
        listing.tell(member(f"b{year}", "2", state=MemberStanding.DEAD))
        listing.membership.forget(f"b{year}")
    listing.tell(member("c", "2"))
    assert listing.after(SETTLE_MS) == ("1", "2")
    assert listing.convergence.claims == {"a": "1", "c": "2"}


def test_a_restart_waits_for_its_own_place():
    """Without its own claim, or with a new id, its share would be empty for good."""
    listing = Listing(kept={"a": "1", "b": "2"})
    own = member("a", "1")
    listing.tell(own._replace(shard_id=None), member("b", "2"))
    assert listing.after(0) is None
    assert listing.tell(own) == ("1", "2")
    assert listing.tell(own._replace(shard_id="7", is_firm=False)) is None
    assert listing.after(SETTLE_MS) is None, "it is not firm"
    assert listing.tell(own._replace(shard_id="7")) == ("2", "7")


def test_who_comes_and_goes_holds_up_nobody():
    """One node bounces for ever: others enter and leave in time, and the bouncing one was never gone."""
    listing = Listing()
    listing.tell(member("b", "2"), member("c", "3"))
    assert listing.after(SETTLE_MS) == ("1", "2", "3")
    listing.tell(member("d", "4"), member("c", "3", state=MemberStanding.DEAD))
    for epoch in range(2, 2 + 2 * SETTLE_MS // 1_000):
        listing.tell(member("b", "2", state=MemberStanding.LEFT, epoch=epoch))
        listing.after(500)
        listing.tell(member("b", "2", epoch=epoch)._replace(shard_id=None, is_firm=False))
        ids = listing.after(500)
        assert ids == (("1", "2", "3") if epoch < 1 + SETTLE_MS // 1_000 else ("1", "2", "4")), epoch
    first = Listing()  # Without a kept list the list must be stable; a bounce is no change.
    first.tell(member("b", "2"), member("c", "3"))
    for epoch in range(2, 2 + SETTLE_MS // 1_000):
        first.tell(member("b", "2", state=MemberStanding.DEAD, epoch=epoch))
        first.after(500)
        first.tell(member("b", "2", epoch=epoch))
        ids = first.after(500)
    assert ids == ("1", "2", "3")


def test_who_expects_others_and_hears_nobody_waits_for_an_hour():
    """A node that was told to join makes no list alone until `retire_max` has passed."""
    listing = Listing()
    assert listing.after(HOUR_MS - 1) is None
    assert listing.after(1 + SETTLE_MS) == ("1",)


def test_who_knows_nobody_waits_for_nobody():
    """The first node of a cluster builds at once, with a provisional claim."""
    listing = Listing(expects_others=False, firm=False)
    assert listing.after(0) == ("1",)
    assert listing.tell(member("b", "2")) == ("1",)
    assert listing.after(SETTLE_MS) == ("1", "2")


def test_nothing_is_computed_while_nobody_is_heard():
    """The list is hidden while isolated; after an hour alone it has the remaining members."""
    listing = Listing()
    listing.tell(member("b", "2"))
    assert listing.after(SETTLE_MS) == ("1", "2")
    assert listing.isolate(isolated=True) is None
    assert listing.tell(member("b", "2", state=MemberStanding.DEAD)) is None
    assert listing.after(HOUR_MS - 1) is None
    assert listing.after(1) == ("1", "2")
    assert listing.after(SETTLE_MS) == ("1",)


def test_after_being_heard_again_stillness_begins_anew():
    """Changes during isolation have not yet been seen by members that might object."""
    listing = Listing()
    listing.tell(member("b", "2"))
    listing.after(SETTLE_MS)
    listing.isolate(isolated=True)
    listing.tell(member("b", "2", state=MemberStanding.DEAD))
    listing.after(SETTLE_MS)
    assert listing.isolate(isolated=False) == ("1", "2")
    assert listing.after(SETTLE_MS - 1) == ("1", "2")
    assert listing.tell(member("b", "2")) == ("1", "2")


def test_a_member_without_an_id_has_no_part():
    """A member without an id delays the list only as long as any change."""
    listing = Listing()
    nameless = member("b", "2")._replace(shard_id=None, is_firm=False)
    assert listing.tell(nameless) is None
    assert listing.after(SETTLE_MS) == ("1",)


def test_a_node_that_has_no_id_yet_waits_for_one():
    """The list is empty, and time alone does not fill it."""
    listing = Listing(expects_others=False)
    listing.tell(member("a", "1")._replace(shard_id=None))
    assert listing.after(SETTLE_MS) is None
    assert listing.convergence.wakes_at_ms is None
    assert listing.tell(member("a", "7")) == ("7",)


STATES = st.sampled_from(list(MemberStanding))
CHANGES = st.lists(
    st.tuples(st.sampled_from("bcde"), st.sampled_from(["1", "2", "3", "10"]), STATES, st.booleans(), st.integers(0, 9))
)


@given(CHANGES)
def test_what_enters_and_what_leaves_has_stood(changes):
    """An id that enters or leaves the ring has been present, or absent, for the whole time."""
    listing = Listing(kept={"a": "1", "b": "2"})
    listing.tell(member("b", "2"))
    living, since, shown = {"1", "2"}, {}, {"1", "2"}
    for name, shard_id, state, firm, seconds in changes:
        listing.tell(member(name, shard_id, state=state, firm=firm))
        before, living = living, {each.shard_id for each in listing.membership if each.state in LIVE}
        since |= dict.fromkeys(living ^ before, listing.now_ms)
        ids = listing.after(1000 * seconds)
        for changed in set(ids) ^ shown:
            assert (changed in ids) == (changed in living)
            assert listing.now_ms - since[changed] >= SETTLE_MS or listing.membership.knows_nobody
        shown = set(ids)


@pytest.mark.parametrize("isolated", [False, True])
def test_told_twice_is_told_once(isolated):
    listing = Listing()
    listing.isolate(isolated=isolated)
    listing.tell(member("b", "2"))
    revision = listing.membership.revision
    listing.tell(member("b", "2"))
    listing.isolate(isolated=isolated)
    assert listing.membership.revision == revision
