"""When versions are read back: every byte once within a period, whatever there is to read, and not much more often."""

import random
from dataclasses import dataclass

from gossipkv.dataset.scrub.schedule import MOST_BYTES_PER_SECOND, bytes_per_second, due_ms, next_due, put_off

DAY_MS = 86_400_000


@dataclass(eq=False)
class Held:
    """A version, as far as its turn goes."""

    name: str
    size_bytes: int
    checked_ms: int
    database: str = "db"


def test_between_two_readings_of_a_byte_there_is_at_most_a_period():
    """One version or twenty, of kilobytes or terabytes, built whenever; and never much less than half of one."""
    chance = random.Random(1)
    for _ in range(200):
        period_ms = chance.choice((10_000, 3_600_000, DAY_MS))
        most_bytes = MOST_BYTES_PER_SECOND // 1000 * period_ms // 4 // 20
        held = [
            Held(
                str(number),
                chance.randrange(1, 1 << chance.randrange(1, most_bytes.bit_length())),
                -chance.randrange(period_ms),
            )
            for number in range(chance.randrange(1, 20))
        ]
        begun = {version: version.checked_ms for version in held}
        ended = dict(begun)
        now_ms = 0
        while now_ms < 10 * period_ms:
            version = next_due(held, now_ms, period_ms)
            if version is None:
                now_ms = min(due_ms(version, period_ms) for version in held)
                continue
            took_ms = version.size_bytes * 1000 / bytes_per_second(sum(one.size_bytes for one in held), period_ms)
            if now_ms > 2 * period_ms:  # Those that were overdue at the beginning are done.
                first_byte_ms, last_byte_ms = now_ms - begun[version], now_ms + took_ms - ended[version]
                assert max(first_byte_ms, last_byte_ms) <= period_ms + 2, version
                assert first_byte_ms >= period_ms * 0.74
            begun[version] = now_ms
            now_ms = int(now_ms + took_ms) + 1
            ended[version] = version.checked_ms = now_ms
        assert min(ended.values()) > 8 * period_ms


def test_a_clock_that_was_set_back_does_not_put_it_off():
    """The next reading comes when it would have come, counted from what the clock said when that was seen."""
    version = Held("v1", 1, 50 * DAY_MS)
    assert next_due([version], DAY_MS, DAY_MS) is None
    assert due_ms(version, DAY_MS) == DAY_MS + DAY_MS * 3 // 4
    assert next_due([version], 2 * DAY_MS, DAY_MS) is version
    assert next_due([], DAY_MS, DAY_MS) is None


def test_the_one_that_waits_longest_comes_first():
    """So none is forgotten."""
    held = [Held("a", 1, 2000), Held("b", 1, 1000), Held("c", 1, 3000)]
    assert next_due(held, DAY_MS * 3 // 4 + 500, DAY_MS) is None
    assert next_due(held, DAY_MS * 2, DAY_MS).name == "b"


def test_one_that_was_refused_lets_others_go_first():
    """However often: the rest is read as if it were not there."""
    stuck, other = Held("a", 1, 0), Held("b", 1, 1)
    assert next_due([stuck, other], DAY_MS, DAY_MS) is stuck
    put_off(stuck, DAY_MS, DAY_MS)
    assert next_due([stuck, other], DAY_MS, DAY_MS) is other
    assert due_ms(stuck, DAY_MS) == DAY_MS + DAY_MS // 16


def test_the_rate_has_bounds():
    """Little data is soon read, and very much takes no disk for itself."""
    assert bytes_per_second(10_000, DAY_MS) == 4 << 20
    assert bytes_per_second(1 << 40, DAY_MS) == (1 << 40) * 4 // 86_400
    assert bytes_per_second(1 << 50, DAY_MS) == 256 << 20
