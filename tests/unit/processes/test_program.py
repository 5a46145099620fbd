"""Lines come whole, and the end of a program is described in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.processes.program import ProgramLines, how_it_ended


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_whole(lines, data):
    """Lines are whole for any cuts, and an incomplete line is kept."""
    text = b"".join(line + b"\n" for line in lines) + b"rest"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    heard, found = ProgramLines(), []
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found += heard.feed(text[begin:end])
    assert found == lines
    assert heard.feed(b"\n") == [b"rest"]


@pytest.mark.parametrize(
    ("status", "words"), [(0, "ended with status 0"), (3, "ended with status 3"), (-9, "was killed by signal 9")]
)
def test_an_end_is_told(status, words):
    """A signal is negative, as in `subprocess`."""
    assert how_it_ended(status) == words
