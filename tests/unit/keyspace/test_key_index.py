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


@pytest.mark.parametrize(("keys", "values"), [([], []), ([b""], []), ([b"a", b"b"], [1])])
def test_an_index_without_values_is_refused(keys, values):
    with pytest.raises(ValueError, match="one value for each"):
        KeyIndex(keys, values)


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
