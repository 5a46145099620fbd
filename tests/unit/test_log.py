"""What the log leaves out: the same again, and strangers without end."""

from __future__ import annotations

from gossipkv.log import MOST_SPARED, MOST_WARNINGS, Log, RepeatedWarnings, Sparing
from tests.world.logs import capture_logs


def test_the_same_is_told_again_after_a_pause() -> None:
    """However often it comes meanwhile, and whatever else does."""
    sparing = Sparing(1.0)
    told = [sparing.lets(tick / 4, address) for tick in range(9) for address in ("10.0.0.1", "10.0.0.2")]
    assert told == [tick % 4 == 0 for tick in range(9) for _ in range(2)]


def test_of_strangers_without_end_some_are_told() -> None:
    """Neither memory nor log is filled by them; a pause later others are told."""
    sparing = Sparing(1.0)
    assert sum(sparing.lets(0.5, number) for number in range(2 * MOST_SPARED)) == MOST_SPARED
    assert len(sparing._told) == MOST_SPARED
    assert sum(sparing.lets(1.5, -1 - number) for number in range(2 * MOST_SPARED)) == MOST_SPARED


def test_each_line_is_said_once_and_no_more_than_so_many():
    """However often it comes, and however many there are."""
    with capture_logs() as logs:
        notices = RepeatedWarnings(Log("gossipkv.test"))
        for _ in range(2):
            for number in range(MOST_WARNINGS + 5):
                notices.say("odd", f"line {number}")
    assert [line["reason"] for line in logs] == [f"line {number}" for number in range(MOST_WARNINGS)]
