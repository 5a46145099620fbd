"""Arguments: each fault has one clear error that names the parameter."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import BadRequest
from gossipkv.wire.arguments import MAX_NAME_BYTES, Arguments, OptionArguments


def arguments(*params: object) -> Arguments:
    return Arguments(b"m", msgpack.packb(params))


def options(**given: object) -> OptionArguments:
    """Return the options of a method `m` that knows these and "others"."""
    return arguments(given).options(*given, "others")


def test_text_and_keys_from_str_or_bin() -> None:
    """Both stand for their bytes; names become text."""
    taken = arguments("db", b"db", "k\xe9y", b"\xff", ["a", b"b"])
    assert taken.text("database") == "db"
    assert taken.text("database") == "db"
    assert taken.key("key", 10) == "k\xe9y".encode()
    assert taken.key("key", 10) == b"\xff"
    assert taken.keys("keys", 10) == [b"a", b"b"]
    taken.end()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "m: the database must be a string, not nil"),
        (1, "m: the database must be a string, not an integer"),
        (1.5, "m: the database must be a string, not a float"),
        (True, "m: the database must be a string, not a boolean"),
        ([], "m: the database must be a string, not an array"),
        ({}, "m: the database must be a string, not a map"),
        (b"a\xff", "m: the database is not UTF-8: invalid start byte at byte 1"),
    ],
)
def test_wrong_text(value: object, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        arguments(value).text("database")
    assert caught.value.message == message


def test_text_over_the_limit() -> None:
    """An overlong name is refused before any look-up, and is not sent back."""
    assert arguments("x" * MAX_NAME_BYTES).text("database") == "x" * MAX_NAME_BYTES
    with pytest.raises(
        BadRequest, match="the database has 256 bytes, more than the 255 that a name may have"
    ) as caught:
        arguments("x" * 256).text("database")
    assert caught.value.details == {"limit": 255, "size": 256}
    with pytest.raises(BadRequest, match="the database has 256 bytes"):
        arguments("x" * 256).text_or_nil("database")
    with pytest.raises(BadRequest, match="the option x has 256 bytes"):
        options(x="x" * 256).text("x")


def test_long_names_of_options_cost_nothing() -> None:
    """A name of megabytes is neither compared with the known options (that took 3 s and 600 MB) nor sent back."""
    with pytest.raises(BadRequest, match="an option's name has 16000000 bytes") as caught:
        arguments({"version" * (16_000_000 // 7) + "vv": 1}).options("version")
    assert len(caught.value.message) < 200
    assert caught.value.details == {"limit": 255, "size": 16_000_000}


def test_missing_and_further_parameters() -> None:
    taken = arguments("db")
    taken.text("database")
    with pytest.raises(BadRequest, match="m: the key is missing; 1 parameter given"):
        taken.key("key", 10)
    taken = arguments("db", 1, 2)
    taken.text("database")
    with pytest.raises(BadRequest, match="m takes 1 parameter, not 3"):
        taken.end()


def test_nil_where_it_is_allowed() -> None:
    assert arguments("db").text_or_nil("database") == "db"
    assert arguments(None).text_or_nil("database") is None
    assert arguments().text_or_nil("database") is None


def test_keys_over_the_limit() -> None:
    """A key of the limit passes, a longer one is refused with both numbers; in an array the index is named."""
    assert arguments(b"x" * 10).key("key", 10) == b"x" * 10
    with pytest.raises(BadRequest, match="the key has 11 bytes") as caught:
        arguments(b"x" * 11).key("key", 10)
    assert caught.value.details == {"limit": 10, "size": 11}
    with pytest.raises(BadRequest, match=r"keys\[1\] has 11 bytes"):
        arguments([b"x", b"x" * 11]).keys("keys", 10)
    with pytest.raises(BadRequest, match=r"keys\[0\] must be bytes, not nil"):
        arguments([None]).keys("keys", 10)
    with pytest.raises(BadRequest, match="the keys must be an array, not bytes"):
        arguments(b"key").keys("keys", 10)


def test_options_by_type() -> None:
    """Each type is read; nil and absence mean not given."""
    given_options = options(text="t", blob=b"b", number=7, flag=True, nil=None)
    assert given_options.text("text") == "t"
    assert given_options.blob("blob") == b"b"
    assert given_options.number("number") == 7
    assert given_options.flag("flag") is True
    assert (given_options.text("nil"), given_options.blob("nil"), given_options.number("nil")) == (None, None, None)
    assert given_options.flag("others") is False
    assert arguments().options("a").number("a") is None


@pytest.mark.parametrize(
    ("value", "read", "message"),
    [
        (1, "text", "m: the option x must be a string, not an integer"),
        (1, "blob", "m: the option x must be bytes, not an integer"),
        ("1", "number", "m: the option x must be an integer, not bytes"),
        (True, "number", "m: the option x must be an integer, not a boolean"),
        (-1, "number", "m: the option x must be at least 0, not -1"),
        (1, "flag", "m: the option x must be true or false, not an integer"),
    ],
)
def test_wrong_options(value: object, read: str, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        getattr(options(x=value), read)("x")
    assert caught.value.message == message


def test_unknown_options_name_the_nearest() -> None:
    """The error suggests the nearest option, or lists all known options."""
    with pytest.raises(BadRequest, match=r"unknown option min_versoin; did you mean min_version\?"):
        arguments({"min_versoin": "1"}).options("version", "min_version")
    with pytest.raises(BadRequest, match="unknown option zzz; the options are version, limit"):
        arguments({"zzz": 1}).options("version", "limit")
    with pytest.raises(BadRequest, match="unknown option zzz; the method has no options"):
        arguments({"zzz": 1}).options()


def test_options_come_last_and_are_a_map() -> None:
    with pytest.raises(BadRequest, match="the options must be a map, not an array"):
        arguments([]).options("a")
    with pytest.raises(BadRequest, match="m takes 1 parameter, not 2"):
        arguments({}, 1).options("a")


@given(st.binary(max_size=40))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    try:
        taken = Arguments(b"m", data)
        taken.text("a")
        taken.keys("b", 5)
        taken.options("c").number("c")
    except BadRequest:
        pass
