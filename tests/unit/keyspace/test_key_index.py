"""The index of sorted keys against its oracle: keys of few letters, so that prefixes and words are often equal."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.keyspace.key_index import KeyIndex
from tests.oracle import key_index as oracle

letters = st.lists(st.sampled_from([b"\0", b"a", b"\xff", b"12345678"]), max_size=6).map(b"".join)


@given(prefix=st.sampled_from([b"", b"k", b"customer:"]), ends=st.sets(letters, min_size=1), asked=st.lists(letters))
def test_the_value_is_the_oracle_s(prefix, ends, asked):
    """Also for keys below all, above all, and within the shared prefix; the first key is often empty."""
    for first in ([], [b""]):
        keys = sorted({*first, *(prefix + end for end in ends)})
        values = [object() for _ in keys]
        index = KeyIndex(keys, values)
        assert (index.keys, index.values) == (tuple(keys), tuple(values))
        for key in [*keys, *asked, *(prefix + end for end in asked), *(key[:-1] for key in keys), prefix, b"\xff" * 99]:
            assert index.find(key) is oracle.find(keys, values, key)


@given(
    prefix=st.sampled_from([b"", b"k"]),
    ends=st.sets(letters, min_size=1),
    cuts=st.sets(st.integers(1, 40)),
    data=st.data(),
)
def test_an_index_of_indexes_finds_the_oracle_s_value_once_the_inner_one_is_filled(prefix, ends, cuts, data):
    keys = sorted(prefix + end for end in ends)
    values = [object() for _ in keys]
    bounds = [0, *sorted(cut for cut in cuts if cut < len(keys)), len(keys)]
    inner = [KeyIndex() for _ in bounds[1:]]
    outer = KeyIndex([keys[first] for first in bounds[:-1]], inner)
    asked = [*keys, *(key + b"a" for key in keys), prefix, b"\xff" * 99]
    for number in data.draw(st.permutations(range(len(inner)))):
        part = slice(*bounds[number : number + 2])
        assert outer.find(keys[part.start]) is None
        inner[number].fill(keys[part], iter(values[part]))
        assert outer.find(keys[part.start]) is values[part.start]
    assert all(outer.find(key) is oracle.find(keys, values, key) for key in asked)


def test_indexes_are_nested_once():
    outer = KeyIndex([b""], [KeyIndex([b""], [KeyIndex([b""], [1])])])
    with pytest.raises(TypeError, match="must hold no indexes"):
        outer.find(b"a")


def test_many_equal_words_are_searched_whole():
    """More keys than are counted one by one, most of them alike in the eight bytes after the prefix."""
    keys = [b"", *sorted(b"%08d" % (number // 90) + b"%04d" % number for number in range(1000))]
    index = KeyIndex(keys, range(len(keys)))
    assert [index.find(key + b"\0") for key in keys] == [*range(len(keys))]


@pytest.mark.parametrize(("keys", "values"), [([], []), ([b""], []), ([b"a", b"b"], [1])])
def test_an_index_is_filled_once_and_with_a_value_for_each_key(keys, values):
    index = KeyIndex()
    with pytest.raises(LookupError, match="fill it first"):
        index.find(b"a")
    with pytest.raises(ValueError, match="one value for each"):
        index.fill(keys, values)
    index.fill([b""], [1])
    with pytest.raises(ValueError, match="an empty index"):
        index.fill([b""], [2])


@pytest.mark.parametrize("wrong", ["a", None, 1])
def test_keys_are_bytes(wrong):
    with pytest.raises(TypeError):
        KeyIndex([b"", b"a"], [1, 2]).find(wrong)
    with pytest.raises(TypeError):
        KeyIndex([b"", wrong], [1, 2])


def test_values_live_as_long_as_the_index():
    """The values are the index's own, also those of an iterator, and go with it, even in a cycle."""

    class Value:
        index = None

    index = KeyIndex([b"", b"b"], (Value() for _ in range(2)))
    gc.collect()
    gone = weakref.ref(index.find(b"c"))
    gone().index = index
    assert index.find(b"b") is gone()
    del index
    gc.collect()
    assert gone() is None
