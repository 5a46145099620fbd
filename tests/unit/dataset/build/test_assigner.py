"""Grouping and verifying keys, against the hashes in plain Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset.build._assigner import Assigner
from gossipkv.keyspace.partitioner import FUNCTIONS, code
from gossipkv.storage.batch import RecordBatch
from tests.oracle import hashing as oracle

UNWANTED = 0xFFFFFFFF
KEYS = st.one_of(
    st.binary(max_size=40), st.text(max_size=20).map(str.encode), st.text("ab0", max_size=30).map(str.encode)
)


def batch_of(keys):
    batch = RecordBatch()
    for place, key in enumerate(keys):
        assert batch.append(key, b"%d" % place, place)
    return batch


def expected_partition(function, key, count):
    try:
        return oracle.partition(function, key, count)
    except ValueError:
        return None


@given(
    st.lists(KEYS, max_size=50),
    st.integers(1, 40),
    st.sampled_from(FUNCTIONS),
    st.lists(st.sampled_from(FUNCTIONS), unique=True),
    st.data(),
)
def test_groups_and_strays_are_the_oracles(keys, count, function, claims, data):
    """The result is the oracle's for every function, claim and expectation, over two files."""
    groups = data.draw(st.lists(st.integers(-1, 9), min_size=count, max_size=count))
    assigner = Assigner(code(function), groups, [code(claim) for claim in claims])
    total = [0] * len(claims)
    for part in (keys[::2], keys[1::2]):
        expected = data.draw(
            st.lists(st.none() | st.integers(0, count - 1), min_size=len(claims), max_size=len(claims))
        )
        assigner.begin_file(expected)
        batch = batch_of(part)
        first = assigner.assign(batch)
        homes = [expected_partition(function, key, count) for key in part]
        wanted = [-1 if home is None else groups[home] for home in homes]
        assert batch.groups() == [UNWANTED if group < 0 else group for group in wanted]
        assert assigner.homeless == (homes.index(None) if None in homes else -1)
        for place, claim in enumerate(claims):
            strays = [
                number for number, key in enumerate(part)
                if expected[place] is None or expected_partition(claim, key, count) != expected[place]
            ]  # fmt: skip
            total[place] += len(strays)
            assert first[place] == (strays[0] if strays else -1)
        assigner.drop_unwanted(batch)
        assert batch.offsets() == [number for number, group in enumerate(wanted) if group >= 0]
        assert batch.keys() == [key for key, group in zip(part, wanted, strict=True) if group >= 0]
    assert assigner.strays() == total


@pytest.mark.parametrize(
    ("function", "groups", "claims"), [(5, [0], []), (-1, [0], []), (0, [], []), (0, [0], [7]), (0, [0], [0] * 6)]
)
def test_what_makes_no_sense_is_refused(function, groups, claims):
    """An unknown code, no partitions and too many claims are refused."""
    with pytest.raises(ValueError, match=r"code|partitions"):
        Assigner(function, groups, claims)


def test_every_claim_needs_an_expectation():
    assigner = Assigner(0, [0, 1], [0, 1])
    with pytest.raises(ValueError, match="got 1 expected partitions for 2 claims"):
        assigner.begin_file([0])
