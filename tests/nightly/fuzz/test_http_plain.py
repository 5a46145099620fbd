"""FUZZ_FRAMES drawn streams of HTTP: the loop and the gateway answer what is plain of them as the oracle does.

Replays as in `frames.py`; what is drawn stands in `tests/unit/serving/http_requests.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.nightly.fuzz.frames import FRAMES, numbers
from tests.unit.serving.http_driven import Served
from tests.unit.serving.http_judging import judge_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.timeout(7200)

COUNT = min(FRAMES, 2_000_000)  # Each takes some 0.7 ms: a release has other legs as well.


def test_drawn_streams(tmp_path: Path, record_property: Callable[[str, str], None]) -> None:
    """Every answer to its last byte, and every byte that is left to the gateway."""
    served = Served(tmp_path)
    try:
        seen = judge_all(numbers(COUNT), served.answer_stream)
    finally:
        served.close()
    record_property("measured", f"{COUNT:,} streams: {dict(seen)}")
