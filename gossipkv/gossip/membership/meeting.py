"""What happens when a node asks another of the same cluster name and a different cluster id.

A cluster id keeps two clusters apart that happen to have one name.  It is random, drawn by the first node, and every
packet carries it.  Both ends of a meeting look at the same four things and come to the same end:

    one has no id               it takes the other's; if neither has one, the asked one draws it
    one is pinned, one is not   the other takes the pinned one's
    both are pinned             refused, for good: each has a catalogue, and two do not become one
    one is lone                 it takes the other's
    both are lone               the smaller id is taken
    neither is lone             the asker takes the asked one's if that is smaller, or if nobody whom it was told to
                                join is in its present cluster and the asked one was not told to join it: then nobody
                                else can bring the two together

Who only remembers an address changes nothing there: another cluster may have it by now.  And the asked one takes an id
only while it is lone: a node goes over to a cluster that it was told to join, not to one that happens to call.  Those
who were told to join it follow by themselves, since it is no longer with them.  Nobody goes to and fro: with a seed at
its side a node only goes to smaller ids.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from gossipkv.gossip.envelope import NO_CLUSTER


class Side(NamedTuple):
    """One of the two."""

    cluster_id: bytes
    lone: bool
    pinned: bool
    told: bool = False  # It was told to join the other, and does not only remember the address.
    free: bool = False  # The asker: none of those whom it was told to join is with it.


class Outcome(enum.Enum):
    """What the meeting comes to."""

    SAME = "both are of one cluster"
    DRAW = "neither has an id: the asked one draws one"
    ASKER_TAKES = "the asker takes the id of the asked one"
    ASKED_TAKES = "the asked one takes the id of the asker"
    REFUSED = "both stay what they are, for now or for good"


def meet(asker: Side, asked: Side) -> Outcome:
    """The outcome, the same on either end."""
    if asker.cluster_id == asked.cluster_id:
        return Outcome.DRAW if asker.cluster_id == NO_CLUSTER else Outcome.SAME
    if NO_CLUSTER in {asker.cluster_id, asked.cluster_id}:
        return Outcome.ASKER_TAKES if asker.cluster_id == NO_CLUSTER else Outcome.ASKED_TAKES
    if asker.told and _goes_over(asked, asker):
        return Outcome.ASKED_TAKES
    if asker.told and not asker.pinned and _lets_in(asked, asker):
        return Outcome.ASKER_TAKES
    return Outcome.REFUSED


def _goes_over(asked: Side, asker: Side) -> bool:
    if asked.pinned or not asked.lone:
        return False
    return asker.pinned or not asker.lone or asker.cluster_id < asked.cluster_id


def _lets_in(asked: Side, asker: Side) -> bool:
    if asker.lone or asked.pinned:
        return True
    return asked.cluster_id < asker.cluster_id or (asker.free and not asked.told)
