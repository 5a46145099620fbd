"""100,000 random HTTP requests, mostly realistic ones: loop and gateway agree with the oracle."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.unit.serving.http_driven import Served
from tests.unit.serving.http_judging import judge_all

PARTS, STREAMS = 4, 10_000
REQUESTS = 24_500  # For each part, at about two and a half requests a stream.
KINDS = (
    "200",
    "206",
    "304",
    "404",
    "416",
    "429",
    "500",
    "502",
    "503",
    "504",
    "strange",
    "partial",
    "unread",
    "nothing",
)


@pytest.mark.parametrize("part", range(PARTS))
def test_drawn_requests(tmp_path, part):
    """The loop answers each stream and the gateway each fourth; all kinds of results are frequent."""
    with closing(Served(tmp_path)) as served:
        seen = judge_all(range(part * STREAMS, (part + 1) * STREAMS), served.answer_stream, gateway_each=4)
    assert seen["requests"] > REQUESTS
    assert all(seen[kind] > 100 for kind in KINDS), seen
