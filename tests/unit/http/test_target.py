from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.http.answers import RefusedRequest
from gossipkv.http.target import MAX_TARGET_BYTES, parse
from tests.oracle import request_target

PIECES = st.sampled_from([
    b"/", b"//", b"..", b".", b"+", b"%2F", b"%2f", b"%00", b"%25", b"%", b"%4", b"%zz", b"?", b"&", b"=", b"proxy",
    b"true", b"geo", b"a", b"%c3%bc", b"%FF", b"#", b";", b":", b"@",
])  # fmt: skip
TARGETS = st.lists(PIECES, max_size=12).map(lambda pieces: b"/" + b"".join(pieces))


def text(data):
    return data.decode("utf-8", "replace")


@given(TARGETS | st.binary(max_size=40).map(lambda data: b"/" + data))
def test_a_target_is_read_as_by_the_oracle(raw):
    """Database, key and options agree with a bytewise decoder; a bad escape is 400."""
    expected = request_target.read(raw)
    try:
        target = parse(raw)
    except RefusedRequest as bad:
        assert (expected, bad.answer.status) == (None, 400)
        return
    assert expected is not None
    database, key, options = expected
    assert (target.database, target.key) == (text(database) or None, key)
    assert target.path == raw.partition(b"?")[0]
    named = {}
    for name, value in options.items():
        named.setdefault(text(name), text(value))
    assert target.options == named


@given(st.binary(max_size=60))
def test_every_key_can_be_written(key):
    assert parse(b"/geo/" + b"".join(b"%%%02x" % byte for byte in key)).key == key


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (b"/geo/a/b", b"a/b"),
        (b"/geo//a", b"/a"),
        (b"/geo/../x", b"../x"),
        (b"/geo/.", b"."),
        (b"/geo/a+b", b"a+b"),
        (b"/geo/a%2Fb", b"a/b"),
        (b"/geo/%00%00%00%2A", b"\0\0\0*"),
        (b"/geo/%2525", b"%25"),
        (b"/geo/what%3F", b"what?"),
        (b"/geo/what?", b"what"),
        (b"/geo/", b""),
        (b"/geo", None),
        (b"/", None),
    ],
)
def test_keys_are_everything_behind_the_slash(raw, key):
    """Keys are not normalised, escapes are decoded once, and the first question mark ends the key."""
    assert parse(raw).key == key


def test_a_database_may_be_escaped():
    """An escaped name is decoded; a name that is not a legal one is kept for the error."""
    assert parse(b"/%67eo/x").database == "geo"
    assert parse(b"/a%2Fb/x").database == "a/b"
    assert parse(b"//x").database is None


@pytest.mark.parametrize(
    ("raw", "path", "database", "key"),
    [
        (b"http://example.org:8080/geo/x?proxy=true", b"/geo/x", "geo", b"x"),
        (b"HTTPS://example.org", b"/", None, None),
        (b"http://example.org?proxy=1", b"/", None, None),
        (b"*", b"*", None, None),
    ],
)
def test_other_forms(raw, path, database, key):
    """A whole URL stands for its path, and an asterisk for itself."""
    target = parse(raw)
    assert (target.path, target.database, target.key) == (path, database, key)


def test_options_have_their_first_value():
    """Only the first value of an option counts, as in Sequins."""
    assert parse(b"/a/b?proxy=1&proxy=2&&x=%20+").options == {"proxy": "1", "x": "  "}
    assert parse(b"/a/b?").options == {}


@pytest.mark.parametrize("raw", [b"geo/x", b"", b"example.org:443", b"ftp://example.org/x", b"**"])
def test_what_is_no_target_is_refused(raw):
    with pytest.raises(RefusedRequest) as refused:
        parse(raw)
    assert (refused.value.answer.status, b"request target" in refused.value.answer.body) == (400, True)


def test_an_escape_that_is_none_is_shown_with_its_place():
    with pytest.raises(RefusedRequest) as refused:
        parse(b"/geo/100%")
    assert (
        refused.value.answer.body
        == b"% at byte 8 of the request target is not a valid percent escape; write % as %25\n"
    )


@pytest.mark.parametrize(("size", "status"), [(MAX_TARGET_BYTES, None), (MAX_TARGET_BYTES + 1, 414)])
def test_a_long_target(size, status):
    """A target of 8 KiB is read; one more byte is 414."""
    raw = b"/geo/".ljust(size, b"x")
    if status is None:
        assert len(parse(raw).key) == size - 5
        return
    with pytest.raises(RefusedRequest) as refused:
        parse(raw)
    assert refused.value.answer.status == status
