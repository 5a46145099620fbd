"""Bugs planted in what is told of a database that nodes share."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

SPREAD = "tests/unit/dataset/cluster/test_spread.py"
REPORT = "tests/unit/dataset/test_report.py"
OWNERS = "tests/unit/cli/test_owners.py"

MUTANTS_OF_STATUS: tuple[Mutant, ...] = (
    planted(
        "what the suspected have is missing",
        "gossipkv.placement.holders:Holders.under_replicated",
        "ready = (holder.ready for holder in self.all if holder.state in LIVE)",
        "ready = (holder.ready for holder in self.all if holder.state is HolderState.ALIVE)",
        SPREAD,
    ),
    planted(
        "a gate is said to wait for less than it does",
        "gossipkv.dataset.cluster.spread:Spread._uncovered",
        "alive = {holder.name for holder in holders.all if holder.state is HolderState.ALIVE}",
        "alive = {holder.name for holder in holders.all}",
        SPREAD,
    ),
    planted("a local status tells of others", "gossipkv.dataset.report:status", "if not local:", "if True:", REPORT),
    planted(
        "the status is 0 though a partition has no owner",
        "gossipkv.status.sentences:unowned",
        'if active is not None and count_of(active.get("missing")):',
        "if active is None:",
        OWNERS,
    ),
)
