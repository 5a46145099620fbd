"""The verdict on many situations, single reasons and pairs, is the same on every node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.status.judging.judge import judge
from gossipkv.status.verdict import LEVELS, MAX_REASONS, WELL, verdict_of, worst
from tests.unit.status.reports import AWAY, NODES, entry, said, some, without_n3
from tests.unit.status.situations import BROKEN, HALF, LACKS, SITUATIONS, VERSIONS, lacking

NAMES = [each[0] for each in SITUATIONS]


@pytest.mark.parametrize(("told", "level", "first", "state"), [each[1:] for each in SITUATIONS], ids=NAMES)
def test_situations(told, level, first, state):
    """Each situation has its level, first reason and coming version."""
    made = judge(told)
    assert made.level == level, made.reasons
    if first is None:
        assert [reason for reason in made.reasons if reason.level != WELL] == []
    else:
        assert made.reasons[0].text.startswith(first), made.reasons
    assert {each.state for each in made.coming.values()} == ({state} if state else set())
    assert ("All is well" in made.text) == (level == WELL)


def test_there_are_as_many_situations_as_were_asked_for():
    assert len({each[0] for each in SITUATIONS}) == len(SITUATIONS) >= 40


def test_an_empty_cluster_is_told_how_to_begin():
    """The verdict is well, and no version is awaited."""
    made = judge(said(databases={})._replace(reports={"n1": {"databases": {}}}, members={"n1": "alive"}))
    assert (made.level, made.coming, made.databases) == (WELL, {}, 0)
    assert made.text == "All is well. 0 databases, 1 member, alive."
    assert made.advice[0].startswith(
        "Publish a first version (DATABASE/VERSION/FILES below the source root), or create a table"
    )


@pytest.mark.parametrize(
    ("told", "advice"),
    [
        (said(members={"n3": "dead"}), "Start n3 again, or replace n3 by a new node with its `shard_id`."),
        (
            without_n3(n1={"carts": AWAY}),
            "Start n3 again, or replace n3 by a new node with its `shard_id`. If the disk of n3 is lost, start",
        ),
        (
            without_n3(n1={"carts": {**AWAY, "away": {"0" * 32: {"state": "gone", "partitions": 8}}}}),
            f"If another node took the name of {'0' * 32}, run `gossipkv node replace {'0' * 32} NODE --force --yes`",
        ),
        (said(n3={"tables_closed": "EIO"}), "Check the disk and the log of n3."),
        (said(n3={"tables_lost": "damaged"}), "Put back the table store of n3; only if the store is lost"),
        (said(n1={"unreached": {"n2": "reset"}}), "Check the network between n1 and n2."),
        (said(n2={"silent": "full"}), "Free space on the disk of n2, or make the data directory writable."),
        (said(n1={"isolated": True}), "Check the network between n1 and"),
        (said(n1={"isolated": True, "misfits": {"n2": VERSIONS}}), "Run compatible releases"),
        (said(members={"n3": "dead"}, n1={"misfits": {"n3": VERSIONS}}), "Run compatible releases"),
        (said(n2={"geo": entry(awaits="2", version=BROKEN)}), "Repair part-0 at the source, or the settings of geo"),
        (
            said(**lacking("under_replicated", 1, away=["n4", "n5"])),
            "To make the lacking copies, start n4 and n5, or set `repair_after`, or publish the next version.",
        ),
        (
            said(**lacking("missing", 1, away=["n3"])),
            "To restore the missing partitions, start n3. After `reassign_after`, other nodes build them.",
        ),
    ],
)
def test_what_to_do(told, advice):
    """Each reason has one piece of advice, the most urgent first."""
    assert judge(told).advice[0].startswith(advice)


@pytest.mark.parametrize("beside", [{"all_say": {"sourceless": True}}, {"all_say": {"source_error": "gone"}}])
def test_nobody_is_said_to_build_where_nobody_can(beside):
    """Without a source, or without the version in it, no other node can build missing partitions."""
    missing = lacking("missing", 1, away=["n3"])
    assert "To restore the missing partitions, start n3." in judge(said(**missing, **beside)).advice
    gone = lacking("missing", 1, away=["n3"], at_source=False)
    assert judge(said(**gone)).advice == ["To restore the missing partitions, start n3."]
    alone = said(members={"n2": "dead", "n3": "dead"}, n1={"isolated": True}, **missing)
    assert "To restore the missing partitions, start n3." in judge(alone).advice


@pytest.mark.parametrize("situation", SITUATIONS, ids=[each[0] for each in SITUATIONS])
def test_whoever_hears_the_same_says_the_same(situation):
    """Except for a node's own isolation, the asking node and the order of answers do not matter."""
    told = situation[1]
    said_by = []
    for node in told.reports:
        turned = dict(sorted(told.reports.items(), reverse=node == "n2"))
        made = judge(told._replace(node=node, reports=turned))
        about_itself = ("is cut off", "may be cut off")
        rest = [each for each in made.reasons if not any(words in each.text for words in about_itself)]
        said_by.append((rest, made.coming, made.databases, made.acceptors))
    assert all(each == said_by[0] for each in said_by)


@given(
    st.dictionaries(st.sampled_from(NODES), st.sampled_from([each[1] for each in SITUATIONS]), min_size=1),
    st.sampled_from([each[1] for each in SITUATIONS]),
)
def test_it_is_as_bad_as_its_worst_reason(mixed, told):
    """In any mixture the level follows from the reasons, which are ordered."""
    reports = {**told.reports, **{node: each.reports[node] for node, each in mixed.items() if node in each.reports}}
    made = judge(told._replace(reports=reports))
    levels = [reason.level for reason in made.reasons]
    assert made.level == worst(levels)
    assert levels == sorted(levels, key=LEVELS.index, reverse=True)
    assert verdict_of(made.to_map()) == made
    for name in ("geo", "carts"):
        about = made.about(name)
        assert {reason.database for reason in about.reasons} <= {None, name}
        assert LEVELS.index(made.level_of(name)) <= LEVELS.index(about.level) <= LEVELS.index(made.level)


PLAIN_VALUES = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(PLAIN_VALUES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_nonsense_of_another_release_is_no_crash(told):
    """A member may run any release: unknown facts are ignored."""
    reports = {"n1": told, "n2": {"databases": told}, "n3": {"databases": {"geo": told}, "away": told}}
    made = judge(said()._replace(reports=reports))
    assert verdict_of(made.to_map()) == made
    verdict_of(told)


def test_equal_reasons_about_many_databases_are_one_finding():
    """The finding names the first databases with their versions; one advice serves all; other reasons stay alone."""
    few = lacking("under_replicated", 1, away=["n3"])["databases"]["geo"]
    databases = {f"db{number:03}": few for number in range(100)} | {"other": entry(error="EIO"), "carts": AWAY}
    made = judge(said(members={"n3": "dead"}, databases=databases))
    lacks = "1 of 8 partitions on fewer than 2 live nodes: 1; no other node builds them, since `repair_after` is off"
    first = ", ".join(f"db00{number} 1" for number in range(8))
    assert len(made.reasons) == 103
    assert [text for _, text in made.findings] == [
        "other: EIO",
        "n3 is dead",
        "carts: 8 of 8 partitions lack their replica on n3",
        f"{first} and 92 more: {lacks}",
    ]
    assert made.advice[1:] == [
        "To make the lacking copies, start n3, or set `repair_after`, or publish the next version."
    ]


def test_equal_waits_of_many_databases_are_one():
    """A database that waits for another version or in another way keeps its own line."""
    coming = {"a": entry(None, "1", HALF), "b": entry(None, "1", HALF), "c": entry(None, "2", HALF)}
    made = judge(said(databases=coming))
    assert [text for _, text in made.waits if "n1" in text] == [
        "a and b: version 1: waits for what n1 builds, 50 % done, 40 s left",
        "c: version 2: waits for what n1 builds, 50 % done, 40 s left",
    ]
    assert [text for _, text in made.findings] == [
        "a and b cannot be read yet: version 1 is coming, 50 % done, 40 s left; 3 nodes build",
        "c cannot be read yet: version 2 is coming, 50 % done, 40 s left; 3 nodes build",
    ]


def test_very_many_reasons_are_counted():
    """The first reasons are listed, and the rest is counted."""
    broken = {f"db{number:04}": entry(error="EIO") for number in range(MAX_REASONS + 5)}
    made = verdict_of(judge(said(databases=broken)).to_map())
    assert len(made.reasons) == MAX_REASONS + 1
    assert made.reasons[-1].text == "and 5 more"


def test_what_a_version_waits_for_is_told_member_by_member():
    """The order is: the node's own reason, the slowest builder, failures, and other waits."""
    made = judge(said(
        n1={"geo": entry(awaits="2", version={**HALF, "waits_until": "every partition has an owner"})},
        n2={"geo": entry(awaits="2", version={"state": "BUILDING", "progress": {"done": 0.2}})},
        n3={"geo": entry(awaits="2", version={"state": "ERROR", "error": {"message": "EIO"}, "waiting_for": "room"})},
    ))  # fmt: skip
    assert made.coming["geo"].waits == (
        "waits until every partition has an owner",
        "waits for what n2 builds, 20 % done",
        "waits for what n1 builds, 50 % done, 40 s left",
        "n3 cannot build it: EIO",
        "n3 waits for room",
    )
    assert made.coming["geo"].progress == "20 % done; 2 nodes build"


def test_what_is_cut_off_is_not_believed_of_others():
    """A cut-off node's view of others is outdated; its facts about itself count."""
    lost = entry(version={**LACKS, "missing": some(1)}, error="EIO")
    made = judge(said(n2={"isolated": True, "geo": lost}))
    texts = [reason.text for reason in made.reasons]
    assert "geo: EIO (n2)" in texts
    assert not any("without a live owner" in text for text in texts)
    alone = judge(said(members={"n1": "dead", "n3": "dead"}, asked="n2", n2={"isolated": True, "geo": lost}))
    assert any("without a live owner" in reason.text for reason in alone.reasons)


def test_one_cause_is_one_reason():
    """A cause has one reason and one advice, or none if it resolves itself."""
    for name in ("files that are still written", "the first version is broken", "held on what is nowhere"):
        (told,) = (each[1] for each in SITUATIONS if each[0] == name)
        assert len([reason for reason in judge(told).reasons if reason.level != WELL]) == 1, name
    (writing,) = (each[1] for each in SITUATIONS if each[0] == "files that are still written")
    assert judge(writing).advice == []


@pytest.mark.parametrize(
    ("told", "is_sure"),
    [(said(members={"n3": "dead"}), True), (said(members={"n3": "suspect"}, silent={"n3": "x"}), False)],
)
def test_that_everything_can_be_read_is_said_where_all_have_answered(told, is_sure):
    """Partitions of a suspected member may be unreadable at this moment."""
    assert judge(told).text.startswith("Everything can be read; something" if is_sure else "Something") is True
