"""Tests over many runs; `test_feeds.py` has the others. Planted defects of change feeds are found by drawn runs."""

from __future__ import annotations

from functools import partial

import pytest

from gossipkv.replication.changes.pages import ChangeFeeds
from gossipkv.table.records.changes import ChangeFeed, TableChanges
from gossipkv.wire.results import Later
from tests.world.replication.world import run

pytestmark = pytest.mark.timeout(600)

READ = TableChanges.changes
END = ChangeFeed._end


def looked_up_early(self, arguments):
    """Find the feed of a poll while the request is read: another poll of the same packet moves the feed on."""
    later = READ(self, arguments)
    asked, wait_s = later.begin.args
    feed = self.feeds.get(asked.key)
    return later if feed is None else Later(partial(feed.poll, wait_s, asked.token))


def taken_along(self, polls, error):
    """Let a client that leaves take what others with its token wait for."""
    others = self.polls.keys() - {*polls}
    END(self, polls, error)
    if others:
        self._count, self._bodies = 0, []


def overwritten(self, replica, node, stable):
    """Let the newest feed of a node replace the others that wait."""
    self._watched.setdefault(replica, {})[node] = stable
    if replica.synced != stable.counters:
        self._look_soon(replica)


@pytest.mark.parametrize(
    ("owner", "name", "defect", "seeds"),
    [
        (TableChanges, "changes", looked_up_early, (36,)),
        (ChangeFeed, "_end", taken_along, (13,)),
        (ChangeFeeds, "watch", overwritten, (4,)),
    ],
)
def test_a_planted_defect_is_found(owner, name, defect, seeds, monkeypatch):
    assert not any(run(seed).violations for seed in seeds)
    monkeypatch.setattr(owner, name, defect)
    found = [violation for seed in seeds for violation in run(seed).violations]
    assert any("feeds" in str(violation) for violation in found), found
