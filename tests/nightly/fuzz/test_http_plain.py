"""FUZZ_FRAMES random streams of HTTP: the loop and the gateway answer plain requests as the oracle does.

Replays work as in `frames.py`; `tests/unit/serving/http_requests.py` draws the streams.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.nightly.fuzz.frames import FRAMES, numbers
from tests.unit.serving.http_driven import Served
from tests.unit.serving.http_judging import judge_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.timeout(7200)

COUNT = min(FRAMES, 2_000_000)  # A stream takes some 0.7 ms, and a release has other legs as well.


def test_drawn_streams(tmp_path: Path, record_property: Callable[[str, str], None]) -> None:
    """Every answer, and every byte left to the gateway, is as the oracle says."""
    with closing(Served(tmp_path)) as served:
        seen = judge_all(numbers(COUNT), served.answer_stream)
    record_property("measured", f"{COUNT:,} streams: {dict(seen)}")
