"""The end of a feed in the simulation: the feed has all records of the replicas, also those of ended assignments."""

import pytest

from gossipkv.replication.changes.places import FeedPlace
from gossipkv.replication.replica import clock
from tests.world.replication.copies import Model
from tests.world.replication.feeds import may_lack

REPLICA = Model(b"node", 7, 1, config=5, clock={1: 25})  # By config 5, assignment 2 has ended.


def at(config, **how):
    return FeedPlace(7, b"", clock.of([(1, 25), (2, 4)]), config, **how)


@pytest.mark.parametrize(
    ("place", "is_short"),
    [
        (FeedPlace(7, b"", clock.of([(1, 25)]), 5), False),
        (FeedPlace(7, b"", clock.of([(1, 24)]), 5), True),
        (at(4), True),  # Assignment 2 may have written more before it ended.
        (at(5, cursor=b""), True),
        (FeedPlace(7, b""), True),
    ],
)
def test_a_feed_is_not_at_the_end_while_it_may_lack_records(place, is_short):
    assert may_lack(place, REPLICA) is is_short
