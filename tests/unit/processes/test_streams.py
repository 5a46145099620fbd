"""The queue of lines is bounded, and lines that do not fit are counted."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.processes import streams
from gossipkv.processes.streams import LineQueue


@given(st.lists(st.one_of(st.text("ab\N{EURO SIGN}", max_size=30), st.just(None)), max_size=40))
def test_each_line_is_written_or_counted(steps):
    """Lines stay in order, within the limit, and none is written twice. None stands for a `take`."""
    backlog, said, written, lost = LineQueue(), 0, [], 0
    with mock.patch.object(streams, "MAX_QUEUED_BYTES", 50):
        for text in [*steps, None]:
            if text is not None:
                backlog.put(f"{said} {text}\n")
                said += 1
            else:
                taken = backlog.take()
                written += [int(line.split()[0]) for line in taken.data.decode().splitlines()]
                lost += taken.lost
            assert len(backlog) <= 50
    assert len(written) + lost == said
    assert written == sorted(set(written))
    assert backlog.take() == (b"", 0)
