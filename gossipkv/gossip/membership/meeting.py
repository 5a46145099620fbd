"""What happens when a node asks another of the same cluster name and a different cluster id.

A cluster id keeps two clusters apart that happen to have one name.  It is random, drawn by the first node, and every
packet carries it.  Both ends of a meeting look at the same four things and come to the same end:

    one has no id               it takes the other's; if neither has one, the asked one draws it
    one is pinned, one is not   the other takes the pinned one's
    both are pinned             refused, for good: each has a catalogue, and two do not become one
    one is lone                 it takes the other's
    otherwise                   the smaller id is taken

Only a node that was told to join the other changes anything: who merely remembers an address may find another cluster
there by now.  Being told is enough for both, whoever asks: those who were told to join a node that went over, and those
whom it was told to join, follow by the same rule, so two clusters that were told of each other become one.  Ids of
clusters only ever go down, so nobody goes to and fro.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from gossipkv.gossip.packets.prefix import NO_CLUSTER


class Side(NamedTuple):
    """One of the two."""

    cluster_id: bytes
    lone: bool
    pinned: bool
    told: bool = False  # The asker: it was told to join the other, and does not only remember the address.


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
    if not asker.told or (asker.pinned and asked.pinned):
        return Outcome.REFUSED
    if asker.pinned != asked.pinned:
        return Outcome.ASKED_TAKES if asker.pinned else Outcome.ASKER_TAKES
    if asker.lone != asked.lone:
        return Outcome.ASKER_TAKES if asker.lone else Outcome.ASKED_TAKES
    return Outcome.ASKED_TAKES if asker.cluster_id < asked.cluster_id else Outcome.ASKER_TAKES
