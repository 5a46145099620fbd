"""Whether a node that is about to leave is still missed by those who stay.

A node that is stopped says that it leaves (beside its claim of a place in the ring) and goes on answering.  From then
on it counts in no gate, others ask it after all that stay, and what only it has they build at once (`shares`).  It goes
when each partition of what is active where members stay has an owner that stays; or when nobody who stays builds what
is missing, which is known once they have had the time to say so; at once, if nobody stays.

Until then also what is newer than what is active there counts: a gate may have passed by what this node had answered,
and the word of the switch be on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.dataset.cluster.publication import COALESCED_MS

if TYPE_CHECKING:
    from gossipkv.dataset.cluster.members import Membership
    from gossipkv.dataset.cluster.survey import Survey

PROBE_INTERVALS: Final = 2  # In which others hear that this node leaves, and this node what they say to that.


def is_missed(survey: Survey, membership: Membership, *, probe_interval_ms: int, now_ms: int) -> bool:
    """Whether something of what is active where members stay is here alone, and one of them may come to have it."""
    own, staying, since_ms = membership.own.name, membership.staying, membership.leaving_since_ms
    assert since_ms is not None, "it does not leave"
    active = {survey.needs_of(name).active for name in staying}
    may_be_news = now_ms < since_ms + COALESCED_MS + PROBE_INTERVALS * probe_interval_ms
    for version, published in survey.published.items():
        is_newer = any(each is None or version > each for each in active)
        if version not in active and not (may_be_news and is_newer):
            continue
        for identity in published:
            holders = survey.availability(identity).holders
            here_alone = holders.at_least(1, {own}) - holders.at_least(1, staying)
            if here_alone and (may_be_news or here_alone & holders.building_at(staying)):
                return True
    return False
