"""A client's session: its memory, the tokens that it sends, its text form and forgetting."""

from __future__ import annotations

import base64

import msgpack
import pytest

from gossipkv.client.sessions import Session
from gossipkv.errors import BadRequest


def test_tokens_of_requests_at_the_same_time_are_joined():
    """Concurrent tokens are joined in any order; a token replaces those that it has seen."""
    session = Session()
    session.saw((), b"1")
    session.saw((b"1",), b"2")
    session.saw((b"1",), b"3")
    assert session.tokens == (b"2", b"3")
    session.saw((b"2", b"3"), b"")  # No token came back.
    assert session.tokens == (b"2", b"3")
    session.saw((b"2", b"3"), b"4")
    assert session.tokens == (b"4",)


def test_a_session_is_written_and_read():
    """The text fits in a URL; forgetting applies to a dataset or, by another name, to all tables."""
    session = Session()
    session.saw((), b"\xff" * 50)
    session.saw_version("geo", "v2")
    session.saw_version("geo", "v1")
    text = session.to_text()
    assert text.isascii()
    again = Session(text)
    assert (again.tokens, again.version("geo"), again.to_text()) == (session.tokens, "v2", text)
    again.forget("geo")
    assert (again.tokens, again.version("geo")) == (session.tokens, None)
    again.forget("t")
    assert again.tokens == ()


@pytest.mark.parametrize(
    "packed", [b"", b"\xc1", [2, {}, []], [1, {}], [1, {"a": 1}, []], [1, {1: "a"}, []], [1, {}, ["a"]], 7]
)
def test_what_is_no_session(packed):
    """Invalid text and invalid base64 give the same error."""
    data = packed if isinstance(packed, bytes) else msgpack.packb(packed)
    for text in (base64.urlsafe_b64encode(data).decode(), "é", "a"):
        with pytest.raises(BadRequest, match="the text is not a saved session"):
            Session(text)
