"""A pace holds over any history."""

import random

from gossipkv.processes.pace import RateLimit


def test_the_pace_is_kept_over_any_history():
    """The bytes never exceed rate times time plus one chunk, and the waits are no longer."""
    rng = random.Random(3)
    pace, now, taken = RateLimit(1000), 50.0, 0
    for _ in range(500):
        size = rng.randrange(1, 400)
        now += pace.take(size, now)
        taken += size
        assert taken <= (now - 50.0) * 1000 + 400
    assert now - 50.0 <= taken / 1000
    now += 100
    assert pace.take(1, now) == 0.0
    pace.rate = 0
    assert [pace.take(10**9, now), pace.take(10**9, now)] == [0.0, 0.0]
