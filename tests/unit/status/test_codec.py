"""A record is decoded even if parts are missing or malformed."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.status.codec import Record, decode, encode, facts
from gossipkv.status.reports import DatasetReport, InfoReport, NodeReport, TableMap, TableReport
from gossipkv.status.verdict import ClusterVerdict


class Inner(Record):
    name: str


class Outer(Record):
    text: str
    maybe: str | None
    whole: int
    number: float
    flag: bool
    data: bytes
    bytes_: int | None
    any: object
    inner: Inner
    perhaps: Inner | None
    names: tuple[str, ...]
    inners: tuple[Inner, ...]
    pairs: tuple[tuple[float, int], ...]
    by_name: dict[str, Inner]
    level: Literal["low", "high"]


TOLD = {
    "text": "a", "maybe": "b", "whole": 3, "number": 1.5, "flag": True, "data": b"d", "bytes": 9, "any": [None],
    "inner": {"name": "c"}, "perhaps": {"name": "e"}, "names": ["f", "g"], "inners": [{"name": "h"}],
    "pairs": [[1.5, 2], [2.0, 3]], "by_name": {"i": {"name": "j"}}, "level": "high",
}  # fmt: skip
EMPTY = Outer("-", None, 0, number=0.0, flag=False, data=b"", bytes_=None, any=None, inner=Inner("-"), perhaps=None,
              names=(), inners=(), pairs=(), by_name={}, level="low")  # fmt: skip


def test_a_record_comes_back_as_it_was_sent():
    made = decode(Outer, TOLD)
    assert made.perhaps == Inner("e")
    assert made.pairs == ((1.5, 2), (2.0, 3))
    assert encode(made) == TOLD
    assert [*encode(made)] == [*TOLD]


@pytest.mark.parametrize("told", [None, 7, "x", [1], {}, {"unknown": 1}, dict.fromkeys(TOLD)])
def test_a_missing_part_has_its_default(told):
    assert decode(Outer, told) == EMPTY


def test_a_part_of_another_type_is_missing():
    wrong = {**{name: [7] for name in TOLD}, "names": {"f": 1}, "inners": 3, "any": None, "level": [1]}
    assert decode(Outer, wrong) == EMPTY
    for name, value in (("whole", True), ("whole", 1.0), ("number", float("nan")), ("flag", 1), ("by_name", [1])):
        assert decode(Outer, {name: value}) == EMPTY


def test_a_malformed_item_is_left_out():
    told = {"inners": [3, {"name": "h"}], "names": ["f", None, ["g"], 7], "pairs": [[1], [1.0, 2], ["x", 2], 3]}
    made = decode(Outer, told | {"by_name": {"i": 3, "k": {}}})
    assert (made.inners, made.names, made.pairs) == ((Inner("h"),), ("f", "7"), ((1.0, 2),))
    assert made.by_name == {"k": Inner("-")}


def test_text_is_printable():
    made = decode(Outer, {"text": "a\x1b\n", "maybe": b"\x00", "by_name": {"\r": {"name": 7}}})
    assert (made.text, made.maybe, made.by_name) == ("a\\x1b\\n", "0x00", {"\\r": Inner("7")})


def test_facts_are_the_parts_that_say_something():
    assert facts(decode(NodeReport, {"draining": True, "silent": "", "copies_aside": 0})) == {
        "draining": True,
        "silent": "",
    }


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-1 << 63, 1 << 64) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.text() | st.sampled_from(["versions", "nodes", "databases", "away", "partitions", "hosts", "latency"]), inner
    ),
))  # fmt: skip
def test_anything_is_decoded(told):
    for record in (ClusterVerdict, DatasetReport, InfoReport, NodeReport, TableMap, TableReport):
        made = decode(record, told)
        assert decode(record, encode(made)) == made
