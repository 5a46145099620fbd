"""The verdict on tables covers moves, waits, quarantined replicas and acceptors."""

from __future__ import annotations

import pytest

from gossipkv.status.judging.judge import judge
from gossipkv.status.verdict import ATTENTION, TROUBLE, WELL, verdict_of
from tests.unit.status.reports import AWAY, TABLE, UNDECIDED, said

MOVES = [
    # Each node's report of the table, and the sentence.
    ({"n1": {"moving": {"PROPOSED": 1}}}, "1 partition moves (1 PROPOSED)"),
    (
        {"n1": {"moving": {"INITIALIZING": 2, "PROPOSED": 1200, "LEAVING": 3}}},
        "1,205 partitions move (1,200 PROPOSED, 2 INITIALIZING, 3 LEAVING)",
    ),
    # Maps of different moments: no move is counted twice.
    ({"n1": {"moving": {"PROPOSED": 5}}, "n2": {"moving": {"LEAVING": 4}}}, "5 partitions move (5 PROPOSED)"),
    # Hosts report sizes, the target its copied bytes and its rate.
    (
        {"n1": {"moving": {"INITIALIZING": 2}, "to_copy": {"n3": 3 << 20}}, "n2": {"to_copy": {"n3": 2 << 20}},
         "n3": {"copied": 1 << 20, "transfer": 1 << 18}},
        "2 partitions move (2 INITIALIZING): 4.0 MiB to copy, 16 s at least",
    ),
    # The slower target counts; one that has more than the size lacks nothing.
    (
        {"n1": {"moving": {"INITIALIZING": 2}, "to_copy": {"n2": 4 << 20, "n3": 4 << 20, "n9": 1 << 20}},
         "n2": {"transfer": 1 << 20}, "n3": {"copied": 9 << 20, "transfer": 1}},
        "2 partitions move (2 INITIALIZING): 5.0 MiB to copy, 4 s at least",
    ),
    ({"n1": {"moving": {"LEAVING": 1}, "to_copy": {"n3": 0}}}, "1 partition moves (1 LEAVING)"),
    ({"n1": {"moving": {"PROPOSED": 1}, "to_copy": {"n3": 9}}}, "1 partition moves (1 PROPOSED): 9 B to copy"),
]  # fmt: skip


@pytest.mark.parametrize(("told", "words"), MOVES)
def test_how_far_moves_are(told, words):
    """The sentence has states and bytes to copy; moves are normal."""
    made = judge(said(**{node: {"carts": {**TABLE, **entry}} for node, entry in told.items()}))
    assert [(reason.level, reason.text) for reason in made.reasons] == [(WELL, f"carts: {words}")]
    assert verdict_of(made.to_map()).advice == []


def test_members_without_which_a_table_lacks_replicas_are_named():
    """A node that was late for a new table, or is dead, is missing."""
    lacks = {**TABLE, "missing": 64, "fewest": 2, "replication": 3, "absent": ["n4"]}
    (reason,) = judge(said(n1={"carts": lacks})).reasons
    assert (reason.level, reason.text) == (ATTENTION, "carts: 2 of 3 wanted replicas: n4 is missing")


def test_who_is_waited_for_is_told_once():
    """The advice is to start the node or to declare it lost."""
    told = {**TABLE, "waits_for": ["n9"]}
    made = judge(said(n1={"carts": told}, n2={"carts": told}))
    assert [reason.text for reason in made.reasons] == ["carts: moves of partitions wait for n9, which is down"]
    remove = "run `gossipkv node remove n9 --force --yes`; without `--yes` it only says what may be lost."
    assert made.advice == [f"Start n9. If n9 is lost for good, {remove}"]


def test_copies_that_are_set_aside_are_told_once():
    """Replicas of a known table are listed with their bytes, others with their node."""
    told = {"carts": {**TABLE, "aside": {"copies": 2, "bytes": 5 << 20}}}
    made = judge(said(n2={**told, "copies_aside": 2}))
    (reason,) = made.reasons
    assert (reason.level, reason.database) == (ATTENTION, "carts")
    assert reason.text == "carts: 2 copies are set aside at n2, 5.0 MiB: their places were given away"
    assert "gossipkv table quarantine list" in made.advice[0]
    made = judge(said(n2={**told, "copies_aside": 3}))
    assert {one.text for one in made.reasons} == {reason.text, "n2: 1 replicas of tables are quarantined"}


@pytest.mark.parametrize(("away", "is_told"), [(("n3",), False), (("n2", "n3"), True)])
def test_who_decides_on_tables_needs_a_majority(away, is_told):
    """With one of three acceptors no table can be created or dropped; with two it works."""
    told = said(all_say={"acceptors": ["n1", "n2", "n3"]}, members=dict.fromkeys(away, "dead"))
    words = "1 of the 3 nodes that decide on tables answers: no table can be created or dropped"
    assert (words in [reason.text for reason in judge(told).reasons]) is is_told


def test_acceptors_that_are_gone_are_named_while_the_others_decide():
    """Those of several registers are told together, with what to do: dead ones may start, those that left do not."""
    five = ["n1", "n2", "n3", "n4", "n5"]
    told = said(all_say={"acceptors": five}, databases={"carts": {**TABLE, "acceptors": five}})
    (reason,) = judge(told).reasons
    assert reason.level == ATTENTION
    assert reason.text == (
        "n4 and n5 (left) are acceptors of the catalogue and carts: the others are a majority, and still decide"
    )
    assert reason.advice == (
        "If n4 does not come back, replace it (`gossipkv metadata replace n4 NEW`), or without another node, take it "
        "out (`gossipkv metadata leave n4`)."
    )
    told = said(members={"n3": "dead"}, databases={"carts": {**TABLE, "acceptors": ["n1", "n2", "n3"]}})
    (_, reason) = judge(told).reasons
    assert reason.text.startswith("n3 (dead) is an acceptor of carts: ")
    assert reason.advice.startswith("Start n3. If n3 is lost for good, replace it")
    assert "`gossipkv metadata leave n3 --table carts`" in reason.advice
    four = told._replace(reports={**told.reports, "n4": told.reports["n1"]}, members={**told.members, "n4": "alive"})
    assert "`gossipkv metadata replace n3 n4`" in judge(four).reasons[1].advice  # n4 lives, and is no acceptor.
    suspect = said(members={"n3": "suspect"}, databases={"carts": {**TABLE, "acceptors": ["n1", "n2", "n3"]}})
    assert not any("acceptor" in reason.text for reason in judge(suspect).reasons)


def test_a_lost_majority_of_acceptors_is_forced():
    """The advice is the command with the survivors, since a replacement needs a majority."""
    made = judge(said(members={"n2": "dead", "n3": "dead"}, databases={"carts": UNDECIDED}))
    force = "run `gossipkv metadata force --survivor n1 --table carts --yes`; without `--yes` it only says what may be"
    assert f"Start n2 and n3. If a majority of the acceptors is lost for good, {force} lost." in made.advice


@pytest.mark.parametrize(("is_lost", "placed"), [(True, {}), (True, {"n3": 8}), (False, {}), (False, {"n3": 8})])
def test_a_node_that_was_removed_is_not_advised_to_be_started(is_lost, placed):
    """One that is lost for good never, another one only while it still has partitions."""
    away = {name: {"state": "dead", "partitions": count} for name, count in placed.items()}
    table = {**TABLE, "partition_count": 8, "away": away, "acceptors": ["n1", "n2", "n3"]}
    told = said(members={"n3": "dead"}, all_say={"removed": {"n3": is_lost}}, databases={"carts": table})
    made = judge(told)
    is_wanted = placed and not is_lost
    assert any("tart n3" in advice for advice in made.advice) is bool(is_wanted)
    assert ("n3 is dead, and removed from tables" in [reason.text for reason in made.reasons]) == (not is_wanted)


def test_nodes_that_take_no_writes_are_named():
    """Each node reports itself as "this node"."""
    full = {**TABLE, "error": "this node takes no writes: the disk is full"}
    texts = [reason.text for reason in judge(said(n1={"carts": full}, n3={"carts": full}, n2={"carts": TABLE})).reasons]
    assert texts == ["carts: n1 and n3 take no writes: the disk is full"]
    (reason,) = judge(said(n2={"carts": full})).reasons
    assert reason.text == "carts: n2 takes no writes: the disk is full"


@pytest.mark.parametrize(
    ("told", "texts"),
    [
        (
            said(members={"n2": "dead", "n3": "dead"}, databases={"carts": UNDECIDED}),
            ["n1 hears 1 of 3 members, so it may be cut off",
             "carts: 1 of the 3 nodes that decide on its partitions answers: none can move or split",
             "n2 and n3 are dead"],
        ),
        # The end of a cut link takes the other end for alive, since a third node reaches it.
        (
            said(silent={"n2": "x"}, n1={"unreached": {"n2": "reset"}, "acceptors": ["n2"]},
                 databases={"carts": {**AWAY, "away": {"n2": {"state": "dead", "partitions": 8}}}}),
            ["n1 and n2 do not reach each other, though other nodes reach both: reset"],
        ),
    ],
)  # fmt: skip
def test_all_that_is_said(told, texts):
    """Each cause is told once, by the placement, whichever nodes are remembered."""
    assert [reason.text for reason in judge(told).reasons] == texts


def test_what_is_wrong_with_tables_is_no_matter_of_a_dataset():
    """A dataset's verdict ignores tables, and vice versa."""
    made = judge(said(n2={"tables_closed": "lost"}, databases={"carts": TABLE}))
    assert (made.about("geo").level, made.about("carts", is_table=True).level) == (WELL, TROUBLE)
