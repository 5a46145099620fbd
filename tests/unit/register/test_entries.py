"""The immutable map of entries equals a sorted dictionary, and shares its leaves with the maps before it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gossipkv.register.entries import MAX_LEAF, MIN_LEAF, EntryMap

KEYS = st.one_of(st.sampled_from([b"", b"\0", b"\xff" * 9]), st.integers(0, 120).map(b"%03d".__mod__))
BOUNDS = st.one_of(KEYS, st.binary(max_size=4))
EDITS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=3))), max_size=90)


def check(made, plain):
    """Check a map against a dictionary, and the shape of its leaves."""
    assert [*made.scan()] == sorted(plain.items())
    assert len(made) == len(plain)
    assert all(0 < len(leaf) <= MAX_LEAF for leaf in made.leaves)
    assert sum(len(leaf) < MIN_LEAF for leaf in made.leaves) <= 1


def numbered(count, step=1):
    return EntryMap.of((b"%06d" % (number * step), b"%d" % number) for number in range(count))


@settings(max_examples=40)
@given(
    begun=st.dictionaries(KEYS, st.binary(max_size=3), max_size=130),
    rounds=st.lists(EDITS, max_size=5),
    start=BOUNDS,
    end=st.one_of(st.none(), BOUNDS),
)
@example(begun={}, rounds=[[(b"a", None)], [(b"a", b"")], [(b"a", None)]], start=b"b", end=b"a")
def test_a_map_equals_a_sorted_dictionary_and_older_maps_stay(begun, rounds, start, end):
    made, plain = EntryMap.of(sorted(begun.items())), begun
    versions = [(made, plain)]
    for edits in rounds:
        made, plain = made.edited(edits), {**plain}
        for key, record in edits:
            if record is None:
                plain.pop(key, None)
            else:
                plain[key] = record
        versions.append((made, plain))
    for version, oracle in versions:
        check(version, oracle)
        inside = {key: record for key, record in oracle.items() if start <= key and (end is None or key < end)}
        assert [*version.scan(start, end)] == sorted(inside.items())
        assert [version.get(key) for key in (*oracle, start, b"absent")] == [*oracle.values(), oracle.get(start), None]
        assert all((key, oracle[key]) in version.leaves[version.leaf_of(key)] for key in oracle)
        # An absent key belongs to the last leaf that begins before it, or to the first leaf.
        assert version.leaf_of(start) == max(0, sum(leaf[0][0] <= start for leaf in version.leaves) - 1)
        for key in (start, *oracle):
            assert version.floor(key) == max([entry for entry in oracle.items() if entry[0] <= key], default=None)
            assert version.before(key) == max([entry for entry in oracle.items() if entry[0] < key], default=None)


@pytest.mark.parametrize("is_put", [True, False])
def test_an_edit_of_a_key_changes_at_most_two_leaves(is_put):
    """The other leaves are the same objects, so two maps are compared by their leaves."""
    random, made = Random(7), numbered(3000, step=2)
    for _ in range(1200):
        key = b"%06d" % random.randrange(6000)
        after = made.edited([(key, b"new" if is_put else None)])
        before_ids, after_ids = ({id(leaf) for leaf in each.leaves} for each in (made, after))
        assert len(before_ids - after_ids) <= 2
        assert len(after_ids - before_ids) <= 2
        if not is_put and made.get(key) is None:
            assert before_ids == after_ids
        made = after
    check(made, dict(made.scan()))


@pytest.mark.parametrize("order", ["up", "down", "random", "every second"])
def test_many_deletions_leave_no_crowd_of_small_leaves(order):
    """The number of leaves falls with the number of entries, whatever the order of deletions."""
    made, plain = numbered(2000), dict(numbered(2000).scan())
    keys = sorted(plain)
    if order == "down":
        keys.reverse()
    elif order == "random":
        Random(3).shuffle(keys)
    elif order == "every second":
        keys = keys[::2] + keys[1::2]
    for number, key in enumerate(keys):
        made = made.edited([(key, None)])
        del plain[key]
        assert len(made.leaves) <= len(plain) // MIN_LEAF + 1
        if number % 250 == 0:
            check(made, plain)
    assert [*made.scan()] == [] == [*made.leaves]
    check(made.edited([(b"a", b"again")]), {b"a": b"again"})
