"""Decisions that depend on the cluster: shares, gates and refuted functions."""

from dataclasses import replace

from gossipkv.dataset.build.trouble import Trouble
from gossipkv.dataset.lifecycle.copy_states import CopyState, VersionCopy
from gossipkv.dataset.lifecycle.decisions import Decision, check
from gossipkv.dataset.lifecycle.version_states import Life, VersionEvent, VersionState, VersionWord
from gossipkv.placement.partition_set import PartitionSet
from tests.unit.dataset.lives import (
    IDENTITY,
    RETIRE_MS,
    WHOLE,
    Alone,
    ScriptedVerdicts,
    begin,
    by_name,
    life,
    partial,
    share_of,
    source,
    what,
)


def test_a_copy_is_built_when_its_share_is_known():
    """An empty share is no fault, and nothing is built."""
    one = life("v1")
    one.copy.share = None
    assert what(one, verdicts=ScriptedVerdicts()) == Decision()
    assert what(one).want == (("v1", WHOLE),)
    one.copy.want(PartitionSet.empty(1))
    assert what(one, verdicts=ScriptedVerdicts(share=PartitionSet.empty(1))) == Decision()
    assert (one.word, one.is_waiting, one.is_elsewhere) == (VersionWord.SEEN, False, True)
    one.take(VersionEvent.SWITCH)
    assert one.word is VersionWord.ACTIVE
    check([one], ScriptedVerdicts({"v1"}), "v1", switching=False)


def test_what_others_had_goes_with_them():
    """A version that only other members had goes when none of them has it."""
    old, new = Life("v1", VersionState.RETIRING), life("v2", VersionWord.ACTIVE)
    assert what(old, new, verdicts=ScriptedVerdicts({"v1", "v2"}), active="v2").remove == ()
    assert what(old, new, verdicts=ScriptedVerdicts({"v2"}), active="v2").remove == ("v1",)


def test_a_share_grows_and_what_is_lacking_is_built():
    """A share never shrinks and never belongs to another source than the copy."""
    one = partial(0, 1, share=[0, 1])
    assert (one.copy.state, one.copy.lacks) == (CopyState.READY, share_of())
    assert what(one, verdicts=ScriptedVerdicts(share=share_of(1))) == Decision()
    assert what(one, verdicts=ScriptedVerdicts(share=PartitionSet.whole(3))) == Decision()
    assert what(one, verdicts=ScriptedVerdicts(share=share_of(2))).want == (("v1", share_of(0, 1, 2)),)
    one.copy.want(share_of(0, 1, 2))
    assert (one.copy.state, one.copy.lacks) == (CopyState.WANTED, share_of(2))
    assert what(one, verdicts=ScriptedVerdicts(share=share_of(2))).build == "v1"
    begin(one)
    one.copy.add(share_of(2))
    assert one.is_ready
    one.copy.let_go(share_of(1))
    assert (one.copy.state, one.copy.lacks) == (CopyState.WANTED, share_of(1))


def test_a_damaged_copy_is_built_anew_and_not_added_to():
    """This also holds if the damage is found while partitions are added."""
    one = partial(0, 1, share=[0, 1, 2])
    begin(one)
    assert one.copy.damageable()
    one.copy.damage(Trouble("damaged"), 10**9)
    assert not one.copy.damageable()
    one.copy.add(share_of(2))
    assert (one.copy.state, one.copy.trouble, one.copy.lacks) == (
        CopyState.ERROR,
        Trouble("damaged"),
        share_of(0, 1, 2),
    )
    one.source = source("v1", files=3)
    assert what(one).want == (("v1", PartitionSet.whole(3)),)


def test_what_does_not_fit_is_built_anew():
    """The present partitions are served meanwhile."""
    one = partial(0, 1, share=[0, 1, 2])
    begin(one)
    one.copy.outdate()
    assert (one.copy.state, one.copy.lacks, one.copy.here) == (CopyState.WANTED, share_of(0, 1, 2), share_of(0, 1))


def test_what_relied_on_a_refuted_function_is_of_no_use():
    """The copy is dropped and withdrawn; regrouped copies and copies by another function stay."""
    one = partial(0, share=[0])
    assert what(one, verdicts=ScriptedVerdicts(refuted=("text",))).refute == ()
    assert what(one, verdicts=ScriptedVerdicts(refuted=("text", "sequins"))).refute == ("v1",)
    one.copy.refute()
    assert (one.word, one.open, one.identity, one.copy.lacks) == (VersionWord.SEEN, False, None, share_of(0))
    assert what(one, verdicts=ScriptedVerdicts(refuted=("sequins",))).build == "v1"
    one.copy.begin_open(replace(IDENTITY, partitions=4, regrouped=True), share_of(0))
    assert what(one, verdicts=ScriptedVerdicts(refuted=("sequins",))).refute == ()


def test_a_node_alone_answers_from_what_is_whole():
    """A node alone serves partial versions only if clients had them, and builds the rest."""
    one = partial(0, share=[0])
    assert (what(one).want, what(one).switch) == ((("v1", share_of(0, 1, 2, 3)),), None)
    assert not Alone(by_name([one])).passed("v1")
    one.take(VersionEvent.SWITCH)
    assert Alone(by_name([one])).passed("v1")


def test_what_is_whole_here_is_not_thereby_switched_to():
    """The copy waits for the verdict without being superseded; a version without a copy may be switched to."""
    here, elsewhere = life("v2", VersionWord.AVAILABLE), Life("v3", heard="an identity")
    lives = (life("v1", VersionWord.ACTIVE), here, elsewhere)
    assert what(*lives, verdicts=ScriptedVerdicts(), active="v1") == Decision()
    assert what(*lives, verdicts=ScriptedVerdicts(switch={"v2"}), active="v1").switch == "v2"
    decision = what(*lives, verdicts=ScriptedVerdicts(switch={"v2", "v3"}), active="v1")
    assert (decision.switch, decision.supersede, decision.skip) == ("v3", ("v1", "v2"), ())
    assert what(*lives, verdicts=ScriptedVerdicts(switch={"v0", "v3"}), active="v1", hold="v2").switch is None
    check(lives, ScriptedVerdicts(), "v1", switching=False)


def test_what_is_active_and_has_too_few_owners_is_built_first():
    """A newer version waits for it; otherwise the newest is built first."""
    lives = [Life("v1", VersionState.ACTIVE, source=source("v1"), copy=VersionCopy()), life("v2"), life("v3")]
    lives[0].copy.want(WHOLE)
    for one in lives[1:]:
        one.copy.want(WHOLE)
    assert what(*lives, verdicts=ScriptedVerdicts({"v1"}, short={"v1"}), active="v1").build == "v1"
    assert what(*lives, verdicts=ScriptedVerdicts({"v1"}, short={"v2"}), active="v1").build == "v3"
    assert what(*lives, verdicts=ScriptedVerdicts({"v1"}, short={"v1"}), active="v1", hold="v2").build == "v2"


def test_a_version_is_active_before_its_build_has_ended():
    """The build continues, and its failure does not matter to clients."""
    one = life("v2", VersionWord.BUILDING)
    lives = (life("v1", VersionWord.ACTIVE), one)
    verdicts = ScriptedVerdicts(passed={"v2"}, switch={"v2"})
    assert what(*lives, verdicts=verdicts, active="v1").switch == "v2"
    one.take(VersionEvent.SWITCH)
    lives[0].take(VersionEvent.SUPERSEDE)
    assert what(*lives, verdicts=verdicts, active="v2").stop is None
    check(lives, verdicts, "v2", switching=False)
    one.copy.fail(Trouble("no TAB"), 0)
    assert what(*lives, verdicts=verdicts, active="v2").skip == ()
    check(lives, verdicts, "v2", switching=False)
    assert (one.state, one.word) == (VersionState.ACTIVE, VersionWord.ERROR)


def test_what_clients_have_from_others_alone_retires_as_what_is_here():
    """A version that clients never had and no member has is forgotten."""
    elsewhere = Life("v1", VersionState.ACTIVE, heard="an identity")
    decision = what(
        elsewhere, life("v2", VersionWord.AVAILABLE), verdicts=ScriptedVerdicts({"v1"}, {"v2"}), active="v1"
    )
    assert (decision.switch, decision.supersede) == ("v2", ("v1",))
    assert what(Life("v3", heard="an identity"), verdicts=ScriptedVerdicts(), active="v2").skip == ()
    assert what(Life("v3"), verdicts=ScriptedVerdicts(), active="v2").skip == ("v3",)
    assert what(Life("v1", heard="an identity"), verdicts=ScriptedVerdicts(), active="v2").skip == ("v1",)
    assert what(Life("v1", heard="an identity"), verdicts=ScriptedVerdicts({"v1"}), active="v2").supersede == ("v1",)


def test_what_others_need_does_not_go():
    """Neither silence here nor time changes the decision."""
    old = life("v1", VersionWord.RETIRING)
    assert what(old, verdicts=ScriptedVerdicts({"v1"}), active="v2", now_ms=10**9) == Decision()
    assert what(old, verdicts=ScriptedVerdicts({"v1"}, retire={"v1"}), active="v2", now_ms=10**9).remove == ("v1",)
    assert what(old, verdicts=ScriptedVerdicts({"v1"}, retire={"v1"}), active="v2", now_ms=RETIRE_MS - 1).remove == ()


def test_a_version_without_a_copy_is_switched_back_to_while_others_have_it():
    """The source does not show it; without any member that has it, it does not come back."""
    active = life("v1", VersionWord.ACTIVE)
    for heard, switch in (("an identity", "v3"), (None, None)):
        retiring = Life("v3", VersionState.RETIRING, heard=heard)
        assert what(active, retiring, verdicts=ScriptedVerdicts({"v3"}, {"v3"}), active="v1").switch == switch
