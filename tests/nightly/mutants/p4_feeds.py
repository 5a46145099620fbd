"""Bugs by which a change feed skips an acknowledged change, or gives it late (P4)."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

MUTANTS: tuple[Mutant, ...] = (
    planted(
        "the feed of a poll is looked up before the poll runs",
        "gossipkv.table.records.changes:TableChanges.changes",
        'return Later(partial(self._begin, _Asked(key, token or b"", prefix, start), wait_s))',
        "if (feed := self.feeds.get(key)) is not None:\n"
        "            return Later(partial(feed.poll, wait_s, token))\n        "
        'return Later(partial(self._begin, _Asked(key, token or b"", prefix, start), wait_s))',
        "tests/unit/table/records/test_changes.py",
    ),
    planted(
        "a client that leaves takes the page of others with its token",
        "gossipkv.table.records.changes:ChangeFeed.poll",
        'return partial(self._end, [poll], Unavailable("the poll was ended"))',
        "return partial(self._answer, [poll])",
        "tests/unit/table/records/test_changes.py",
    ),
    planted(
        "a feed that was given up keeps what it has read",
        "gossipkv.table.records.changes:ChangeFeed._end",
        "self.drop()",
        "self._feeds.keep(self, self.key)",
        "tests/unit/table/records/test_changes.py",
    ),
    planted(
        "a feed takes the wake-up of another one at its node",
        "gossipkv.replication.changes.pages:ChangeFeeds.watch",
        "self._watched.setdefault(replica, {}).setdefault(node, stable)",
        "self._watched.setdefault(replica, {})[node] = stable",
        "tests/unit/table/records/test_changes.py",
    ),
    planted(
        "a host that tells in vain does not say so",
        "gossipkv.replication.changes.pages:ChangeFeeds.missed",
        "self._missed[node] += 1",
        "self._missed[node] += 0",
        "tests/unit/table/records/test_changes.py",
    ),
    planted(
        "a feed waits for a host that has lost its majority",
        "gossipkv.replication.changes.pages:ChangeFeeds._look",
        "stable = self.stable(replica) if is_here and self.has_majority(replica) else None",
        "stable = self.stable(replica) if is_here else None",
        "tests/simulation/test_feeds.py",
    ),
    planted(
        "a feed waits for a host that is silent",
        "gossipkv.table.records.changes:TableChanges._answered",
        'self._lost(node, Unavailable("the node does not answer"))',
        "pass",
        "tests/simulation/test_feeds.py",
    ),
    planted(
        "a retired range is taken for one whose log goes on",
        "gossipkv.table.records.feed_token:places_by",
        "if is_joined or is_new:",
        "if is_joined:",
        "tests/unit/table/test_retired_ranges.py",
    ),
)
