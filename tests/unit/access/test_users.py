"""The users file defines users, their tokens and their rights."""

from __future__ import annotations

import hmac
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.access import users
from gossipkv.access.rights import Right, parse_grant
from gossipkv.access.users import EACH_S, FREE, MAX_ADDRESSES, Throttle, User, Users, added, digest_of, parse, removed
from gossipkv.errors import ConfigError

TOKEN = b"gkv-token-of-ana"
FILE = f"""# ours
[ana]
token = "sha256:{digest_of(TOKEN).hex()}"
may = [
  "read:geo*",  # and what will be
  "write:carts",
]

# of the monitoring
["probe.eu"]
may = ["see"]

[anonymous]
may = ["read:public", "see"]
"""
GRANTS = ["read:geo", "write:geo", "operate", "see"]


def wrong(text):
    with pytest.raises(ConfigError) as refused:
        parse(text, "users")
    return str(refused.value)


def test_the_file_says_who_may_do_what():
    """Users are known by token, by certificate, or as anonymous."""
    known = parse(FILE, "users")
    ana = known.by_token(TOKEN)
    assert ana.grants == (parse_grant("read:geo*"), parse_grant("write:carts"))
    assert known.named["ana"] is ana
    assert known.named["probe.eu"].may(Right.SEE)
    assert known.anonymous.may(Right.READ, "public")


@pytest.mark.parametrize("token", [b"", b"gkv-", TOKEN[:-1], TOKEN + b"\n", TOKEN.upper(), bytes(1 << 20), b"\xff\xfe"])
def test_a_wrong_token_is_nobodys(token):
    """A nearly right token is wrong, and an empty one is not that of users without a token."""
    assert parse(FILE, "users").by_token(token) is None


def test_a_token_of_a_mebibyte_is_not_hashed(monkeypatch):
    """A huge token must not keep the node busy."""
    known = parse(FILE, "users")
    monkeypatch.setattr(users, "digest_of", None)
    assert known.by_token(bytes(1 << 20)) is None


def test_the_whole_digest_counts():
    """A token is found by its first bytes and compared to the end in constant time."""
    digest = digest_of(TOKEN)
    near = User("near", (), digest[:-1] + bytes([digest[-1] ^ 1]))
    assert Users([near]).by_token(TOKEN) is None


def test_who_is_unknown_is_compared_as_who_is_known(monkeypatch):
    """Known and unknown tokens cost one comparison of whole digests."""
    known, compared = parse(FILE, "users"), []
    monkeypatch.setattr(hmac, "compare_digest", lambda *both: compared.append([len(one) for one in both]))
    known.by_token(TOKEN)
    known.by_token(b"other")
    assert compared == [[32, 32], [32, 32]]


def test_what_nobody_may_is_not_added_to_a_user():
    """A user of `geo` reads neither public databases nor the nodes' state."""
    known = parse(FILE, "users")
    ana = known.by_token(TOKEN)
    assert not ana.may(Right.READ, "public")
    assert not ana.may(Right.SEE)
    assert not parse(FILE.partition("[anonymous]")[0], "users").anonymous.may(Right.READ, "public")


def test_no_text_of_a_user_has_the_hash():
    known = parse(FILE, "users")
    told = repr(known.by_token(TOKEN)) + repr(known) + repr(known.named) + str(vars(known).keys())
    assert "ana" in told
    assert digest_of(TOKEN).hex()[:8] not in told
    assert repr(digest_of(TOKEN))[2:10] not in told


def test_patterns_that_match_nothing_are_told():
    """The report has name and right, and only of unmatched patterns."""
    assert parse(FILE, "users").unmatched(["geo-eu", "carts"]) == ["anonymous: read:public matches no database"]
    assert len(parse(FILE, "users").unmatched([])) == 3
    assert parse('[all]\nmay = ["read:*"]\n', "users").unmatched([]) == []


HASH = "0" * 64
REFUSED = [
    ("", "the file has no user"),
    ("# nothing\n", "the file has no user"),
    ("[ana", "not TOML"),
    ("[ana]\nmay = []\n[ana]\nmay = []\n", "not TOML"),
    ("ana = 1\n", "users:1: ana: expected a table"),
    ("a = " + "[" * 5000, "not TOML"),
    ("a = " + "1" * 5000, "not TOML"),
    ('["a b"]\nmay = []\n', "a user's name must have"),
    ('["a\\nb"]\nmay = []\n', "'a\\nb': a user's name must have"),
    ('[ana]\nmay = []\n"to\\nken" = 1\n', "ana: unknown field 'to\\nken'; the fields are token and may"),
    (f'["{"a" * 65}"]\nmay = []\n', "a user's name must have"),
    ("[ana]\n", "users:1: ana: the rights are missing"),
    (f'[ana]\ntoken = "sha256:{HASH}"\n', "users:1: ana: the rights are missing"),
    ("[ana]\nmay = []\ntokens = []\n", "users:3: ana: unknown field 'tokens'; the fields are token and may"),
    ('[ana]\nmay = "see"\n', "users:2: ana.may: expected an array"),
    ("[ana]\nmay = [1]\n", "users:2: ana.may: expected an array"),
    ('[ana]\n\nmay = ["see", "read"]\n', "users:3: ana.may: 'read': read needs a pattern"),
    ('[ana]\nmay = []\ntoken = "secret"\n', "users:3: ana.token: expected sha256:"),
    (f'[ana]\nmay = []\ntoken = "sha256:{HASH[1:]}"\n', "ana.token: expected sha256:"),
    ("[ana]\nmay = []\ntoken = 5\n", "ana.token: expected sha256:"),
    (f'[anonymous]\nmay = []\ntoken = "sha256:{HASH}"\n', "anonymous.token: omit it: this user is for clients"),
    (
        f'[ana]\nmay = []\ntoken = "sha256:{HASH}"\n[bob]\nmay = []\ntoken = "sha256:{HASH}"\n',
        "users:6: bob.token: ana has the same token",
    ),
]


@pytest.mark.parametrize(("text", "told"), REFUSED)
def test_what_is_not_right(text, told):
    """The error is one sentence with the place; a text in place of a hash is not repeated."""
    said = wrong(text)
    assert told in said
    assert "\n" not in said
    assert "secret" not in said


def test_a_file_that_is_cut_is_refused_or_has_fewer_users():
    """After a cut at any byte no user gets more rights than the file grants."""
    whole = parse(FILE, "users").named
    kept = set()
    for end in range(len(FILE)):
        try:
            known = parse(FILE[:end], "users").named
        except ConfigError:
            continue
        assert known.items() <= whole.items()
        kept.add(len(known))
    assert kept == {1, 2, 3}


@given(st.integers(0, len(FILE)), st.integers(0, 40), st.text(max_size=20))
def test_whatever_the_file_holds(at, gone, instead):
    """Any text yields users or one sentence without a hash."""
    try:
        parse(FILE[:at] + instead + FILE[at + gone :], "users")
    except ConfigError as refused:
        assert "\n" not in str(refused)
        assert digest_of(TOKEN).hex()[:16] not in str(refused)


# Changes


NAMES = st.from_regex(r"[-_.a-zA-Z0-9]{1,8}", fullmatch=True).filter(lambda name: name != "anonymous")
MAY = st.lists(st.sampled_from([*GRANTS, "read:*", "write:a*b"]).map(parse_grant), max_size=3).map(tuple)


@given(NAMES, MAY, st.none() | st.binary(min_size=32, max_size=32))
def test_who_is_added_is_there_and_who_is_removed_is_not(name, grants, digest):
    """Nothing else changes, comments included."""
    user = User(name, grants, digest)
    if name in {"ana", "probe.eu"}:
        with pytest.raises(ConfigError, match="remove the user first"):
            added(FILE, user, "users")
        return
    text = added(FILE, user, "users")
    assert text.startswith(FILE)
    assert parse(text, "users").named == {**parse(FILE, "users").named, name: user}
    assert removed(text, name, "users").rstrip() == FILE.rstrip()
    assert parse(added("", user, "users"), "users").named == {name: user}


def test_comments_stay_with_those_who_follow():
    """Only the lines between a removed user's header and its last line go."""
    text = removed(FILE, "ana", "users")
    assert text == "# ours\n" + FILE[FILE.index("\n# of the monitoring") :]
    assert "ana" not in tomllib.loads(text)


UNREMOVED = [
    (FILE, "bob", "the file has no user bob; its users are ana, probe.eu, anonymous"),
    ("[ana]\nmay = []\n", "ana", "ana is the only user"),
    (
        "ana.may = []\nbob.may = []\nana.token = 'sha256:" + HASH + "'\n",
        "ana",
        "users:1: ana is not a table of its own",
    ),
    ("ana = { may = [] }\nbob = { may = [] }\n", "ana", "users:1: ana is not a table of its own"),
]


@pytest.mark.parametrize(("text", "name", "told"), UNREMOVED)
def test_who_cannot_be_removed(text, name, told):
    """The removal of lines removes only this user, or is refused."""
    with pytest.raises(ConfigError) as refused:
        removed(text, name, "users")
    assert told in str(refused.value)


NOW = 100.0


def after(count, address="10.0.0.1"):
    """Return a throttle that has seen this many wrong tokens at once."""
    throttle = Throttle()
    for _ in range(count):
        throttle.wrong(address, NOW)
    return throttle


def test_five_are_free_and_each_second_one_more():
    """The limit is per address and does not depend on the total."""
    assert [after(count).wrong("10.0.0.1", NOW) for count in (0, 1, 4, 5, 6)] == [False, False, False, True, True]
    assert not after(50).wrong("10.0.0.2", NOW)
    for count in (FREE, 50):
        throttle = after(count)
        later = [throttle.wrong("10.0.0.1", NOW + at) for at in (0.75, 1.0, 1.0, 1.5, 3.0, 3.0, 3.0, 100.0)]
        assert later == [True, True, True, True, False, True, True, False]


@given(st.lists(st.floats(0, 3), max_size=60))
def test_no_more_than_one_a_second(pauses):
    """In any stretch of time at most five and one a second are free."""
    throttle, now, free = Throttle(), 0.0, []
    for pause in pauses:
        now += pause
        free += [] if throttle.wrong("10.0.0.1", now) else [now]
    for begin in range(len(free) - FREE):
        assert free[begin + FREE] - free[begin] >= EACH_S * 0.999


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_who_counts_as_one(one, other, is_same):
    """A network of IPv6 counts as one address, and an IPv4 address in any form."""
    assert after(FREE, one).wrong(other, NOW) == is_same


def test_memory_is_bounded_and_the_oldest_goes():
    """A recent address is remembered through a flood of others, up to the limit."""
    throttle = after(FREE, "10.255.0.1")
    for number in range(2 * MAX_ADDRESSES):
        throttle.wrong(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", NOW)
        if number in {MAX_ADDRESSES // 2, MAX_ADDRESSES + 9}:
            assert throttle.wrong("10.255.0.1", NOW)
    assert throttle.wrong("10.255.0.1", NOW)
    for number in range(MAX_ADDRESSES):
        throttle.wrong(f"11.{number >> 16}.{number >> 8 & 255}.{number & 255}", NOW)
    assert not throttle.wrong("10.255.0.1", NOW)
    assert len(throttle._clear_at) == MAX_ADDRESSES
