"""The settings that a database goes by in the cluster."""

from __future__ import annotations

from typing import NamedTuple


class Terms(NamedTuple):
    """Numbers of copies, and times in milliseconds."""

    replication: int
    min_replication: int
    reassign_after_ms: int
    retire_after_ms: int
    probe_interval_ms: int  # Of the profile of gossip: no answer counts in a gate that is older.
    grace_ms: int  # Dissemination and a forwarded read: for so long a withdrawn copy is answered.
    switch_patience_ms: int = 0  # For so long at most a switch waits until there are `replication` copies.
