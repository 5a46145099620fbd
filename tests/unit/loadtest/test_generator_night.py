"""The effect of a stall on percentiles."""

from __future__ import annotations

import pytest

from tests.unit.loadtest.scripted import MS, Asked, Peer, Scripted, right
from tests.unit.loadtest.test_generator import PERIOD_MS, RATE, STALL_MS


def test_percentiles_under_a_stall_are_those_of_the_schedule() -> None:
    """With stalls of 100 ms a second, every percentile matches the exact schedule within a bucket."""
    with Scripted(connections=300) as scripted:
        scripted.generator.begin(rate=RATE, duration_ns=3 * PERIOD_MS * MS, now_ns=0)
        waiting: list[tuple[Peer, Asked]] = []
        for now in range(3 * PERIOD_MS + STALL_MS + 1):
            scripted.turn(now * MS)
            waiting += [(peer, asked) for peer in scripted.peers for asked in peer.asked()]
            if now % PERIOD_MS >= STALL_MS:
                for peer, asked in waiting:
                    peer.send(right(asked))
                waiting.clear()
                scripted.turn(now * MS)
        exact = sorted(max(0, STALL_MS - now % PERIOD_MS) for now in range(3 * PERIOD_MS))
        found = scripted.generator.tally.histogram
        assert found.count == len(exact)
        for share in (0.5, 0.9, 0.95, 0.99, 0.999, 1):
            expected = exact[-(-len(exact) * int(share * 1000) // 1000) - 1] * MS
            assert found.quantile(share) == pytest.approx(expected, rel=1 / 31)
        assert scripted.generator.tally.lateness.maximum == 0
