"""Acknowledgements: a write reaches its level once enough slots of its partition have confirmed it.

    one         the origin has synced the write
    majority    more than half of the slots have confirmed
    all         every slot has confirmed

A slot confirms when its AVAILABLE host and its INITIALIZING target, if any, have confirmed under the origin's config:
a moving slot counts once both ends have the write. A slot with only a target confirms nothing: such a target is
incomplete, and a majority of it and one host would be lost with that host. A PROPOSED target is not awaited: it loads
these records later, and becomes AVAILABLE only when it covers the clocks of a majority. Hosts confirm by their clocks;
incomplete hosts by their spans (`replica.bootstrap`), and only records that came since their feed began.
"""

from __future__ import annotations

from typing import Final

from gossipkv.replication._replication import AckTracker, count_beginning, slots_needed

__all__ = ["ALL", "LEVELS", "MAJORITY", "ONE", "AckTracker", "count_beginning", "slots_needed"]

ONE: Final = "one"
MAJORITY: Final = "majority"
ALL: Final = "all"
LEVELS: Final = (ONE, MAJORITY, ALL)
