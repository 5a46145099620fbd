"""Change feeds under drawn faults: planted defects are found, and the checker rejects what it should."""

from __future__ import annotations

import pytest

from gossipkv.replication.changes.pages import ChangePage
from tests.world.replication.fed import faults_of
from tests.world.replication.world import run

pytestmark = pytest.mark.timeout(600)

PUTS = {b"one": b"1", b"two": b"2", b"four": b"4"}
DELETES = [b"3", b"5"]


@pytest.mark.parametrize(
    ("shown", "last", "fault"),
    [
        ([b"one", b"two", None, b"four"], b"four", ""),
        ([b"one", b"one", b"four"], b"four", ""),
        ([None, b"four", None], None, ""),
        ([b"two", b"one", b"four"], b"four", "follows a later version"),
        ([b"one", None, b"two", b"four"], b"four", "follows a later version"),
        ([b"one", b"two"], b"four", "it ends with b'two'"),
        ([], b"four", "it ends with 'nothing'"),
    ],
)
def test_the_checker_takes_versions_in_order_alone(shown, last, fault):
    faults = faults_of(shown, PUTS, DELETES, last, is_due=True)
    assert [fault in found for found in faults] == [True] * bool(fault)


def skipping(self, replica, number, entry, config, *, take=ChangePage._take):
    """Pass each third entry without giving its records."""
    if entry.position % 3 == 0:
        self._add = lambda *_: None
        try:
            return take(self, replica, number, entry, config)
        finally:
            del self._add
    return take(self, replica, number, entry, config)


def everything(self, replica, place, rows, config):
    """Give entries of another host's log as they are."""
    return [*rows]


DEFECTS = {
    "an entry is skipped": (ChangePage, "_take", skipping),
    "an older version follows": (ChangePage, "_present", everything),
}


@pytest.mark.parametrize(("defect", "seed"), [("an entry is skipped", 4), ("an older version follows", 11)])
def test_a_planted_defect_is_found(defect, seed, monkeypatch):
    monkeypatch.setattr(*DEFECTS[defect])
    assert {violation.checker for violation in run(seed).violations} == {"feeds"}
