"""100,000 drawn requests of HTTP, most of them as programs send them: loop and gateway say what the oracle does."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.unit.serving.http_driven import Served
from tests.unit.serving.http_judging import judge_all

PARTS, STREAMS = 4, 10_000
REQUESTS = 24_500  # Of each part, in streams of two and a half.
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
    """Each stream by the loop, each fourth by the gateway as well; nothing that is drawn is rare."""
    with closing(Served(tmp_path)) as served:
        seen = judge_all(range(part * STREAMS, (part + 1) * STREAMS), served.answer_stream, gateway_each=4)
    assert seen["requests"] > REQUESTS
    assert all(seen[kind] > 100 for kind in KINDS), seen
