"""The settings of a database in the cluster."""

from __future__ import annotations

from typing import NamedTuple


class Terms(NamedTuple):
    """Numbers of copies, and times in milliseconds."""

    replication: int
    min_replication: int
    reassign_after_ms: int
    retire_after_ms: int
    probe_interval_ms: int  # The gossip profile sets this; older answers do not count in a gate.
    grace_ms: int  # Time for dissemination and a forwarded read: a withdrawn copy is still answered for this long.
    switch_patience_ms: int = 0  # The longest wait of a switch for `replication` copies.
    repair_after_ms: int = 0  # Another node builds a lacking copy after that; 0: never.
