"""Messages mask secrets in URLs and options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.settings.masking import is_place, is_url, leaves, mask_url, scrub


@pytest.mark.parametrize(("text", "url"), [
    ("s3://bucket/x", True), ("simplecache::s3://bucket", True), ("ftp://a:b@c/", True), ("abfs+x.y://z", True),
    ("/srv/data", False), ("data", False), ("./s3://x", False), ("C:/x", False), ("", False), ("a b://x", False),
])  # fmt: skip
def test_what_is_a_url(text, url):
    """A URL has a protocol before `://`, or a chain of protocols."""
    assert is_url(text) is url


@pytest.mark.parametrize(("text", "shown"), [
    ("s3://bucket/a@b", "s3://bucket/a@b"), ("ftp://joe:pass@host/x", "ftp://***@host/x"),
    ("x::ftp://joe@host", "x::ftp://***@host"), ("ftp://joe:p@ss@host/a@b", "ftp://***@host/a@b"),
    ("no http://a:b@c and http://d:e@f/", "no http://***@c and http://***@f/"),
    ("https://host/x.tsv?sig=a/b&e=1", "https://host/x.tsv?***"), ("http://host/what?", "http://host/what?"),
    ('no "https://a:b@host?c=d", why?', 'no "https://***@host?***", why?'),
])  # fmt: skip
def test_users_passwords_and_queries_are_masked(text, shown):
    """Secrets are masked in every URL, anywhere in a text."""
    assert mask_url(text) == shown


@given(st.text("abc@:", min_size=1, max_size=9), st.text("xyz", min_size=1))
def test_what_is_masked_is_gone(user, host):
    """Nothing before the last `@` is left."""
    shown = mask_url(f"ftp://{user}@{host}/path")
    assert shown == f"ftp://***@{host}/path"


def test_options_are_scrubbed_from_messages():
    """Values of every depth and the URL's secrets are masked, but not the store's place."""
    options = {
        "key": "AKIDAKID", "nested": {"secret": "hush-hush", "deeper": {"token": "t0ken"}}, "n": 12345, "short": "ab",
        "client_kwargs": {"endpoint_url": "http://u:pw@store:1", "region_name": "west"},
    }  # fmt: skip
    said = "AKIDAKID hush-hush t0ken ab west http://store:1 http://u:pw@store:1 joejoe passpass"
    assert scrub(said, "ftp://joejoe:passpass@host/", options) == (
        "*** *** *** ab west http://store:1 http://***@store:1 *** ***"
    )
    assert scrub("no s1gned at x", "https://host/x?e=12&sig=s1gned", {}) == "no *** at x"


def test_leaves_and_places():
    """Each value has the path of names that leads to it."""
    assert dict(leaves({"a": 1, "b": {"c": True, "d": {"e": "f"}}})) == {"a": 1, "b.c": True, "b.d.e": "f"}
    assert is_place("client_kwargs.region_name")
    assert is_place("endpoint_url")
    assert not is_place("endpoint_url.secret")
