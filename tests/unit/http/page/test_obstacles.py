"""What blocks a switch, in words, from what nodes of a real cluster said."""

from __future__ import annotations

from gossipkv.http.page.obstacles import MOST_BUILDERS, builders, obstacles
from gossipkv.http.page.survey import Survey
from gossipkv.placement.partition_set import PartitionSet
from tests.unit.http.page.nodes import as_told, told

NEXT = "2026-11-21"


def survey(said, silent=None):
    """What a page would have asked."""
    answers = {name: entries for name, entries in said["local"].items() if entries is not None}
    return Survey(0.0, said["info"], said["members"], said["status"], answers, silent or {})


def test_who_builds_is_named_with_how_far_it_is():
    """The slowest first."""
    assert obstacles(survey(told("upgrade")), "geo", NEXT) == [
        "waits for what n1 builds, 20 % done, 16 s left",
        "waits for what n2 builds, 20 % done, 16 s left",
        "waits for what n4 builds, 28 % done, 10 s left",
        "waits for what n3 builds, 34 % done, 8 s left",
    ]
    assert builders(survey(told("calm")), "geo", "2026-11-20") == []


def test_partitions_that_are_built_are_counted_where_they_are_known():
    """The node's own sentence comes first."""
    said = told("upgrade")
    version = said["status"]["geo"]["versions"][NEXT]
    version |= {
        "partition_count": 8,
        "waits_until": "every partition has an owner: 3 of 8 have none (1, 3, 5)",
        "owners": [
            {"node": "n4", "state": "alive", "ready": {}, "building": as_told(PartitionSet.of(8, [1, 3, 5]))},
            {"node": "n3", "state": "alive", "ready": {}, "building": as_told(PartitionSet.of(8, [1]))},
        ],
    }
    said["local"] = {name: entries for name, entries in said["local"].items() if name in {"n3", "n4"}}
    said["local"]["n4"]["geo"]["versions"][NEXT]["progress"]["done"] = 0.8
    assert obstacles(survey(said), "geo", NEXT) == [
        "waits until every partition has an owner: 3 of 8 have none (1, 3, 5)",
        "waits for 1 partition that n3 builds, 34 % done, 8 s left",
        "waits for 3 partitions that n4 builds, 80 % done, 10 s left",
    ]


def test_who_did_not_answer_is_named():
    """Nobody reads silence as progress."""
    silent = {"n3": "connection refused", "n7": "no answer within 1 s"}
    said = obstacles(survey(told("suspected"), silent), "geo", NEXT)
    assert said[-1] == "n3 and n7 did not answer what they do: connection refused"
    assert obstacles(survey(told("suspected"), {"n3": "x"}), "geo", NEXT)[-1] == "n3 did not answer what it does: x"


def test_who_cannot_build_says_why_once():
    """Those with the same reason are one sentence; who waits for room or for the source is another."""
    said = told("upgrade")
    for name, room in (("n3", "room on the disk"), ("n4", "room on the disk")):
        said["local"][name]["words"] = {"versions": {"v2": {"state": "SEEN", "waiting_for": room}}}
    reason = "/srv/source/words/v2/part-00000<script>.tsv: line 2, byte 4: no TAB in the line 'no tabulator here'"
    assert obstacles(survey(said), "words", "v2") == [
        f"n1 and n2: cannot build it: {reason}",
        "n3 and n4: waits for room on the disk",
    ]


def test_many_builders_are_counted():
    """The slowest are named, of the others it is said how far they are."""
    said = told("upgrade")
    one = said["local"]["n1"]
    said["local"] = {}
    for number in range(MOST_BUILDERS + 3):
        version = {"state": "BUILDING", "progress": {"done": number / 100}}
        said["local"][f"m{number}"] = {**one, "geo": {"versions": {NEXT: version}}}
    words = obstacles(survey(said), "geo", NEXT)
    assert len(words) == MOST_BUILDERS + 1
    assert words[-1] == "waits for 3 more nodes that build, 8 to 10 % done"


def test_a_node_that_tells_little_is_no_trouble():
    """Older nodes say less: what is not said is not made up."""
    bare = Survey(0.0, {}, [], {"geo": {}}, {"n1": {"geo": {"versions": {"v": {"state": "BUILDING"}}}}, "n2": {}})
    assert obstacles(bare, "geo", "v") == ["waits for what n1 builds, 0 % done"]
    assert obstacles(bare, "nowhere", "v") == []
