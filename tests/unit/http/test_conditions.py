from __future__ import annotations

import email.parser
import email.policy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.http import conditions, ranges
from gossipkv.wire import http_date
from tests.oracle import http_conditions

TAG = '"2-00000000"'
TIME_S = 1_470_052_587
CONTENT_TYPE = b"text/x-value"
ABOUT = (b"X-Sequins-Version", b"2")

TAGS = st.sampled_from([TAG, f"W/{TAG}", '"2-00000001"', '"x,y"', '""'])
TAG_LISTS = st.just("*") | st.lists(TAGS, min_size=1, max_size=3)
TIMES = st.sampled_from([-1, 0, 1]).map(lambda by: http_date.write(TIME_S + by).decode()) | st.sampled_from(["0", ""])
NUMBERS = st.sampled_from(["", "0", "1", "3", "9", "10", "11", "007", "9" * 19, "9" * 30])
ONE_RANGE = st.tuples(NUMBERS, NUMBERS).map("-".join) | st.sampled_from(["", " ", "x", "1", "1-2-3", "+1-2"])
RANGES = st.tuples(
    st.sampled_from(["bytes=", "bytes=", "Bytes =", " bytes=", "items=", "bytes"]),
    st.lists(ONE_RANGE, max_size=4).map(", ".join),
).map("".join) | st.just("bytes=" + ",".join(["0-0"] * 17))
WHOLE_RANGES = st.lists(st.sampled_from(["0-0", "1-3", "3-", "-3", "0-9", "9-10", "10-", "-0"]), min_size=1, max_size=3)
CONDITIONS = {
    "if-match": TAG_LISTS,
    "if-none-match": TAG_LISTS,
    "if-modified-since": TIMES,
    "if-unmodified-since": TIMES,
}
PARTS = {"if-range": TIMES | TAGS, "range": RANGES | WHOLE_RANGES.map(lambda each: "bytes=" + ",".join(each))}
HEADERS = st.one_of(
    st.fixed_dictionaries({}, optional=CONDITIONS),
    st.fixed_dictionaries({"range": PARTS["range"]}, optional={"if-range": PARTS["if-range"]}),
    st.fixed_dictionaries({}, optional=CONDITIONS | PARTS),
)


def found_of(value, time_s=TIME_S):
    return conditions.FoundValue(value, TAG.encode(), time_s, CONTENT_TYPE, [ABOUT])


def in_bytes(headers):
    return {
        name.encode(): (", ".join(value) if isinstance(value, list) else value).encode()
        for name, value in headers.items()
    }


@settings(max_examples=settings.default.max_examples * 5)
@given(
    st.sampled_from(["GET", "GET", "HEAD"]),
    HEADERS,
    st.sampled_from([b"", b"x", b"0123456789", b"0123456789"]),
    st.sampled_from([None, TIME_S]),
)
def test_conditions_are_judged_as_by_the_oracle(method, headers, value, time_s):
    """Status, body and parts agree with an oracle that reads RFC 9110 by sets of positions."""
    status, parts = http_conditions.status(method, headers, (TAG, time_s, len(value)), ranges.MAX_RANGES)
    answer = conditions.answer(method.encode(), in_bytes(headers), found_of(value, time_s))
    told = dict(answer.headers)
    assert answer.status == status
    assert told[b"X-Sequins-Version"] == b"2"
    if status == 200:
        assert answer.body == value
        assert (told[b"Content-Type"], told[b"Accept-Ranges"]) == (CONTENT_TYPE, b"bytes")
    if status in {200, 206, 304}:
        assert told[b"ETag"] == TAG.encode()
        assert told.get(b"Last-Modified") == (None if time_s is None else http_date.write(time_s))
    if status == 304:
        assert answer.body == b""
    if status == 416:
        assert told[b"Content-Range"] == b"bytes */%d" % len(value)
    if status == 206:
        expected = [(value[part[0] : part[-1] + 1], part[0], part[-1]) for part in parts]
        assert parts_of(answer, len(value)) == expected


def parts_of(answer, size):
    """Return (bytes, first, last) of each part; the standard library splits several parts."""
    told = dict(answer.headers)
    if b"Content-Range" in told:
        assert told[b"Content-Type"] == CONTENT_TYPE
        return [(answer.body, *placed(told[b"Content-Range"].decode(), size))]
    head = b"Content-Type: " + told[b"Content-Type"] + b"\r\n\r\n"
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + answer.body)
    found = []
    for part in message.iter_parts():
        assert part["content-type"] == CONTENT_TYPE.decode()
        found.append((part.get_payload(decode=True), *placed(part["content-range"], size)))
    return found


def placed(content_range, size):
    unit, _, where = content_range.partition(" ")
    place, _, of = where.partition("/")
    assert (unit, of) == ("bytes", str(size))
    first, _, last = place.partition("-")
    return int(first), int(last)


@pytest.mark.parametrize("count", [ranges.MAX_RANGES, ranges.MAX_RANGES + 1, 700])
def test_hundreds_of_ranges_are_answered_with_the_whole(count):
    """Up to a limit each range is a part; beyond it the header is ignored, as RFC 9110 allows."""
    value = bytes(range(256)) * 8
    header = b"bytes=" + b",".join(b"%d-%d" % (at, at) for at in range(0, 2 * count, 2))
    answer = conditions.answer(b"GET", {b"range": header}, found_of(value))
    if count > ranges.MAX_RANGES:
        assert (answer.status, answer.body) == (200, value)
    else:
        assert answer.status == 206
        assert parts_of(answer, len(value)) == [(value[at : at + 1], at, at) for at in range(0, 2 * count, 2)]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=30))
def test_no_header_makes_an_answer_much_larger_than_its_value(pairs):
    """Overlapping ranges cannot make the server send a value many times."""
    value = b"v" * 50
    header = b"bytes=" + b",".join(b"%d-%d" % pair for pair in pairs)
    answer = conditions.answer(b"GET", {b"range": header}, found_of(value))
    assert len(answer.body) <= len(value) + 200 * ranges.MAX_RANGES


def test_a_boundary_is_no_part_of_the_value():
    """A value that contains the first boundary gets another one."""
    parts = [ranges.BodyPart(0, 0), ranges.BodyPart(2, 2)]
    first = ranges.several(b"abc", parts, b"a/b")[1].partition(b"boundary=")[2]
    second = ranges.several(b"ab" + first, parts, b"a/b")[1].partition(b"boundary=")[2]
    assert second != first


def test_long_lists_are_read_in_one_pass():
    """Thousands of quotes, commas and spaces are not a tag, and are read in linear time."""
    for tags in (b'"' * 30_000, b", " * 15_000, b'W/"' * 10_000, b" " * 30_000):
        assert conditions.answer(b"GET", {b"if-none-match": tags}, found_of(b"x")).status == 200
        assert conditions.answer(b"GET", {b"if-match": tags}, found_of(b"x")).status == 412


def test_a_tag_is_of_version_and_bytes():
    """The tag differs by version and by bytes, and is equal on all nodes."""
    tags = {conditions.entity_tag(version, value) for version in ("1", "2") for value in (b"", b"x", b"y")}
    assert len(tags) == 6
    assert conditions.entity_tag("2", b"x") == conditions.entity_tag("2", b"x")
    assert conditions.entity_tag("v-1_a", b"123456789") == b'"v-1_a-e3069283"'


def test_tags_beyond_the_simple():
    """A comma within quotes belongs to the tag, and a weak tag counts for If-None-Match alone."""
    for tags, strong, weak in (
        (f'"a,b", {TAG}', 200, 304),
        (f"W/{TAG}", 412, 304),
        ('"a"', 412, 200),
        (" * ", 200, 304),
    ):
        header = tags.encode()
        assert conditions.answer(b"GET", {b"if-match": header}, found_of(b"x")).status == strong
        assert conditions.answer(b"GET", {b"if-none-match": header}, found_of(b"x")).status == weak


EARLIER, SAME = (http_date.write(TIME_S + by) for by in (-1, 0))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({b"if-match": TAG.encode(), b"if-unmodified-since": EARLIER}, 200),
        ({b"if-match": b'"x"', b"if-none-match": TAG.encode()}, 412),
        ({b"if-unmodified-since": EARLIER, b"if-modified-since": SAME}, 412),
        ({b"if-unmodified-since": SAME, b"if-modified-since": SAME}, 304),
        ({b"if-none-match": b'"x"', b"if-modified-since": SAME}, 200),
        ({b"if-none-match": TAG.encode(), b"if-modified-since": EARLIER}, 304),
        ({b"if-none-match": TAG.encode(), b"range": b"bytes=0-1"}, 304),
        ({b"if-modified-since": b"never", b"range": b"bytes=0-1"}, 206),
        ({b"if-range": SAME, b"range": b"bytes=0-1"}, 206),
        ({b"if-range": EARLIER, b"range": b"bytes=0-1"}, 200),
        ({b"if-range": b"W/" + TAG.encode(), b"range": b"bytes=0-1"}, 200),
    ],
)
def test_the_order_of_evaluation(headers, status):
    """Conditions are evaluated in the order of RFC 9110; a tag takes precedence over a time."""
    assert conditions.answer(b"GET", headers, found_of(b"value")).status == status
