"""What to do next."""

from __future__ import annotations

import pytest

from gossipkv.http.page.advice import advice
from gossipkv.http.page.survey import Survey
from gossipkv.placement.partition_set import PartitionSet
from tests.unit.http.page.nodes import as_told, told


def advised(said, **info):
    """What is advised."""
    return advice(Survey(0.0, {**said["info"], **info}, said["members"], said["status"]))


def test_where_nothing_is_wrong_nothing_is_advised():
    """A calm cluster is left alone."""
    assert advised(told("calm")) == []


def test_whoever_is_to_come_back_is_named_once_for_all_databases():
    """And what happens without them; before it, nothing else is urgent."""
    said = advised(told("two_killed"))
    assert said[0] == (
        "Start n2 and n3 again: 372 partitions of carts-by-day, geo and words have fewer copies than there are to be. "
        "A new node with the `shard_id` of a dead one takes its place."
    )
    assert said[1] == (
        "Mend /srv/source/words/v2/part-00000<script>.tsv at the source, or take words v2 away there; "
        "it is tried again by itself."
    )


def test_what_can_be_read_nowhere_is_the_most_urgent():
    """Of the active version; also where nobody is known who had it."""
    said = told("killed")
    version = said["status"]["geo"]["versions"]["2026-11-21"]
    version["missing"] = as_told(PartitionSet.of(8, [5]))
    nowhere = "again: 1 partition of geo can be read nowhere. After `reassign_after` others build what is missing."
    assert advised(said)[0] == f"Start the nodes that had them {nowhere}"
    version["owners"].append({"node": "n3", "state": "dead"})
    assert advised(said)[0] == f"Start n3 {nowhere}"


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"silent": "no space left"}, "Make room on the disk of n1, or make its data directory writable."),
        ({"isolated": True}, "Look at the network between n1 and the other nodes"),
        ({"claimed_twice": ["n2", "n3"]}, "Give one of the two nodes that are called n2 and n3 another name (`node`)."),
        ({"source_error": "gone"}, "Make the source readable for every node, or mend the setting `source`."),
        (
            {"tables": {"state": "closed", "why": "lost"}},
            "Mend the store of the tables of n1, or start that node with `--forget-tables`.",
        ),
        ({"publish_error": "full"}, "Let nodes publish more (`max_branch`), or have fewer databases."),
    ],
)
def test_what_is_wrong_with_the_node_itself(info, words):
    """One instruction for each."""
    (said,) = advised(told("calm"), **info)
    assert said.startswith(words)


def test_versions_that_need_somebody():
    """Room, one content by one name, and a hold that has done its work."""
    said = told("calm")
    geo = said["status"]["geo"]
    geo["hold"] = "2026-11-20"
    geo["versions"]["2026-11-20"]["conflicts"] = [{"nodes": ["n1"]}, {"nodes": ["n2"]}]
    geo["versions"]["2026-11-21"] = {"state": "SEEN", "waiting_for": "room on the disk", "needed_bytes": 5}
    assert advised(said) == [
        "Let all nodes see the same files of geo 2026-11-20, and give other contents another version's name.",
        "Remove the hold of geo when a newer version is good.",
        "Make room on the disk of n1: geo 2026-11-21 waits for it.",
    ]


def test_an_empty_cluster_is_told_how_to_begin():
    """Where the files of a first version belong."""
    said = told("calm")
    said["status"] = {}
    assert advised(said) == ["Put a first version at the source: DATABASE/VERSION/FILES below its root."]
