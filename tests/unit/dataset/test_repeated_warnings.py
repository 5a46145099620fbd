"""Warnings that are said once."""

from gossipkv.dataset.repeated_warnings import MOST_WARNINGS, RepeatedWarnings
from gossipkv.log import Log
from tests.world.logs import capture_logs


def test_each_line_is_said_once_and_no_more_than_so_many():
    """However often it comes, and however many there are."""
    with capture_logs() as logs:
        notices = RepeatedWarnings(Log("gossipkv.test"))
        for _ in range(2):
            for number in range(MOST_WARNINGS + 5):
                notices.say("odd", f"line {number}")
    assert [line["reason"] for line in logs] == [f"line {number}" for number in range(MOST_WARNINGS)]
