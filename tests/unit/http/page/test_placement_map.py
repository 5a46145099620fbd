"""The cells of a placement map, compared with a computation partition by partition."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.http.page.placement_map import FEW, MAX_CELLS, READY, bands_of, in_order
from gossipkv.http.page.placement_map import placement_map as map_of_version
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.status.codec import decode
from gossipkv.status.reports import MemberReport, VersionStatus
from tests.oracle import placement_cells as oracle
from tests.unit.http.page.nodes import as_told, told


def placement_map(version, nodes):
    return map_of_version(decode(VersionStatus, version), [MemberReport(name, state) for name, state in nodes])


COUNTS = (1, 2, 9, 40, 255, 256, 257, 300, 512, 513, 1000, 4096)


def version_of(count, seed):
    """Draw a version: its owners and their partitions, the under-replicated ones, and disputes."""
    draw = random.Random(seed)

    def some():
        density = draw.choice([0.0, 0.003, 0.2, 0.9, 1.0])
        return {partition for partition in range(count) if draw.random() < density}

    owners = [
        {"node": f"n{number}", "state": draw.choice(["alive", "alive", "suspect", "dead"]), "ready": some()}
        for number in range(draw.randrange(6))
    ]
    for owner in owners:
        owner["building"] = some() - owner["ready"]
    live = [owner["ready"] for owner in owners if owner["state"] != "dead"]
    few = {partition for partition in range(count) if sum(partition in ready for ready in live) < draw.choice([1, 2])}
    return owners, few, [("n0", "n1", some())] if draw.random() < 0.3 else []


@given(st.sampled_from(COUNTS), st.integers(0, 1 << 32))
def test_each_cell_shows_the_worst_of_its_partitions(count, seed):
    """A cell shows the worst state of its band, for each node and for all, folded or not."""
    owners, few, disputes = version_of(count, seed)

    def bitmap(some):
        return as_told(PartitionSet.of(count, some))

    live = [owner for owner in owners if owner["state"] != "dead"]
    missing = {partition for partition in range(count) if not any(partition in owner["ready"] for owner in live)}
    made = placement_map(
        {
            "partition_count": count,
            "missing": bitmap(missing),
            "under_replicated": bitmap(few),
            "owners": [
                {**owner, "ready": bitmap(owner["ready"]), "building": bitmap(owner["building"])} for owner in owners
            ],
            "disputes": [{"nodes": [one, two], "partitions": bitmap(some)} for one, two, some in disputes],
        },
        [("zz", "alive")],
    )
    assert made is not None
    few = oracle.lacking(few, owners)
    size = oracle.band(count, MAX_CELLS)
    assert made.band == size
    disputed = {partition for _, _, some in disputes for partition in some}
    together = "".join(oracle.all_letter(partition, owners, few, disputed) for partition in range(count))
    assert made.together.cells == oracle.cells(together, size, oracle.OF_ALL)
    assert [row.name for row in made.rows] == [*sorted(owner["node"] for owner in owners), "zz"]
    for row, owner in zip(made.rows, sorted(owners, key=lambda owner: owner["node"]), strict=False):
        mine = {partition for one, two, some in disputes if owner["node"] in {one, two} for partition in some}
        letters = "".join(oracle.node_letter(partition, owner, few, mine) for partition in range(count))
        assert row.cells == oracle.cells(letters, size, oracle.OF_NODE)
        assert row.counts == {letter: letters.count(letter) for letter in set(letters) - {"."}}
    assert made.rows[-1].words == "nothing"


def test_a_copy_that_is_on_its_way_is_no_lack():
    """A partition that a live node builds counts as ready; one whose builder is dead is under-replicated."""
    whole, empty = as_told(PartitionSet.whole(4)), as_told(PartitionSet.empty(4))
    builder = {"node": "n2", "state": "alive", "ready": empty, "building": as_told(PartitionSet.of(4, [1, 2]))}
    owners = [{"node": "n1", "state": "alive", "ready": whole, "building": empty}, builder]
    version = {"partition_count": 4, "missing": empty, "under_replicated": whole, "owners": owners}
    made = placement_map(version, [])
    assert [row.cells for row in (made.together, *made.rows)] == ["urru", "urru", ".bb."]
    builder["state"] = "dead"
    assert placement_map(version, []).together.cells == "uuuu"


def test_who_is_alone_lacks_no_copies():
    """A single node cannot be under-replicated; with a second node it can."""
    whole, empty = as_told(PartitionSet.whole(4)), as_told(PartitionSet.empty(4))
    owner = {"node": "n1", "state": "alive", "ready": whole, "building": empty}
    version = {"partition_count": 4, "missing": empty, "under_replicated": whole, "owners": [owner]}
    assert placement_map(version, [("n1", "alive")]).letters == READY
    assert placement_map(version, [("n1", "alive"), ("n2", "alive")]).letters == FEW


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 511, 4096, 65_536])
def test_bands_cover_every_partition_once(count):
    """Bands are limited in number, and all but the last have the same size."""
    bands = bands_of(count)
    assert [partition for first, end in bands for partition in range(first, end)] == list(range(count))
    assert len(bands) <= MAX_CELLS
    assert len({end - first for first, end in bands[:-1]}) <= 1


def test_a_row_says_in_words_what_it_shows():
    """The words name the first runs of each state, for readers that cannot see the cells."""
    version = told("killed")["status"]["geo"]["versions"]["2026-11-21"]
    made = placement_map(version, [("n3", "dead")])
    assert made is not None
    words = {row.name: row.words for row in made.rows}
    assert words == {
        "n1": "4 ready (0, 2, 4, 6)",
        "n2": "4 ready (0, 2, 4, 6)",
        "n3": "nothing",
        "n4": "4 under-replicated (1, 3, 5, 7)",
    }
    assert made.together.words == "4 under-replicated (1, 3, 5, 7); 4 ready (0, 2, 4, 6)"
    assert made.letters == "ru"


@pytest.mark.parametrize("count", [None, 0, -1, 65_537, 1 << 60, "8"])
def test_a_version_that_tells_no_sensible_number_of_partitions_has_no_map(count):
    """An implausible number of partitions gives no map."""
    assert placement_map({"partition_count": count}, []) is None


def test_a_bitmap_of_other_partitions_is_not_believed():
    """The bitmap counts as empty."""
    made = placement_map(
        {"partition_count": 4, "owners": [{"node": "n1", "state": "alive", "ready": {"bitmap": b"\xff" * 9}}]}, []
    )
    assert made is not None
    assert made.rows[0].cells == "...."


def test_nodes_are_in_the_order_in_which_people_count():
    """Names sort by their numbers, and letters are not compared with numbers."""
    names = ["n10", "n2", "N1", "b", "7", "n2a", ""]
    assert sorted(names, key=in_order) == ["", "7", "b", "N1", "n2", "n2a", "n10"]
