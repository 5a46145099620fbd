"""Values in RESP."""

from __future__ import annotations

import pytest

from gossipkv.wire.resp import Line, Refusal, say


@pytest.mark.parametrize(
    ("value", "second", "third"),
    [
        (None, b"$-1\r\n", b"_\r\n"),
        (-7, b":-7\r\n", b":-7\r\n"),
        (b"", b"$0\r\n\r\n", b"$0\r\n\r\n"),
        (b"a\r\n", b"$3\r\na\r\n\r\n", b"$3\r\na\r\n\r\n"),
        (Line("OK"), b"+OK\r\n", b"+OK\r\n"),
        (Refusal("ERR two\r\nlines"), b"-ERR two  lines\r\n", b"-ERR two  lines\r\n"),
        ([], b"*0\r\n", b"*0\r\n"),
        ([b"a", [None]], b"*2\r\n$1\r\na\r\n*1\r\n$-1\r\n", b"*2\r\n$1\r\na\r\n*1\r\n_\r\n"),
        ({b"a": {b"b": 1}}, b"*2\r\n$1\r\na\r\n*2\r\n$1\r\nb\r\n:1\r\n", b"%1\r\n$1\r\na\r\n%1\r\n$1\r\nb\r\n:1\r\n"),
    ],
)
def test_each_kind(value, second, third):
    """As protocol 2 and 3 have it."""
    assert (say(value, 2), say(value, 3)) == (second, third)
