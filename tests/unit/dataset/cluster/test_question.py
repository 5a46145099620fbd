"""The encoding of the direct question and its answer."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset.cluster.question import MemberAnswer, decode, encode
from gossipkv.placement.partition_set import PartitionSet

N = 20
SEALS = st.dictionaries(
    st.sampled_from(["1/none", "1/lz4"]), st.dictionaries(st.integers(0, N - 1), st.integers(0, 2**32 - 1))
)
ANSWERS = st.builds(MemberAnswer, st.sets(st.integers(0, N - 1)).map(lambda some: PartitionSet.of(N, some)), SEALS)


@given(ANSWERS, st.booleans(), st.none() | st.integers(0, 1 << 40))
def test_what_is_told_is_heard(answer, dropping, records):
    """An answer survives MessagePack, also with an unknown field."""
    told = answer._replace(dropping=dropping, records={} if records is None else dict.fromkeys(answer.ready, records))
    packed = msgpack.packb(encode(told) | {"later": 1})
    assert decode(msgpack.unpackb(packed, strict_map_key=False), N) == told


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {"ready": b"", "dropping": False},
        {"ready": "", "dropping": False, "seals": {}},
        {"ready": b"\0\0\x10", "dropping": False, "seals": {}},
        {"ready": bytes(4), "dropping": False, "seals": {}},
        {"ready": b"", "dropping": 1, "seals": {}},
        {"ready": b"\1", "dropping": False, "seals": {}, "fixed": None, "records": [-1]},
        {"ready": b"\1", "dropping": False, "seals": {}, "fixed": None, "records": [1, 1]},
        {"ready": b"", "dropping": False, "seals": {1: [b"", b""]}},
        {"ready": b"", "dropping": False, "seals": {"k": [b"\1", b""]}},
        {"ready": b"", "dropping": False, "seals": {"k": [b"\0\0\x10", bytes(4)]}},
        {"ready": b"", "dropping": False, "seals": {"k": b""}},
        {"ready": b"", "dropping": False, "seals": {str(kind): [b"", b""] for kind in range(17)}},
    ],
)
def test_what_is_malformed_is_no_answer(wrong):
    assert decode(wrong, N) is None
