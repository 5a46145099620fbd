"""Whether anybody is heard at all, and what a silence means.

A node that was cut off, its timers running, hears at one time what others who were suspect, finds its own suspicion
confirmed and long run out, and would call them dead before they can speak.  So after a silence, or after this process
stood still, all is read before anybody is judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.gossip.member import State
from gossipkv.gossip.membership.lifeguard import silence_ms

if TYPE_CHECKING:
    from gossipkv.gossip.membership.beliefs import Beliefs
    from gossipkv.gossip.membership.members import Peer
    from gossipkv.gossip.membership.shared_state import SharedState


@final
class Contact:
    """When this node heard anybody, and how it goes on after it heard nobody."""

    __slots__ = ("_beliefs", "_id", "_members", "_outbox", "_peers", "_profile", "_silence_ms")

    def __init__(self, state: SharedState, beliefs: Beliefs) -> None:
        self._members = state.members
        self._peers = state.members.peers
        self._id = state.members.own.id
        self._profile = state.profile
        self._outbox = state.outbox
        self._beliefs = beliefs
        self._silence_ms = silence_ms(state.profile)

    def start(self, now_ms: int) -> None:
        """Begin: a silence is counted from now on."""
        self._members.hear(None, now_ms)

    def hear(self, sender: bytes, now_ms: int) -> Peer | None:
        """Hear something of that peer, which is returned, or of a stranger."""
        peer = self._peers.get(sender)
        if peer is None and sender == self._id:
            return None  # I asked at an address that is mine as well: nobody else is heard by that.
        if now_ms - self._members.heard_ms > self._silence_ms:
            self._beliefs.suspend_verdicts(now_ms + self._profile.probe_interval_ms)
            self._beliefs.accuse_again()
        self._members.hear(peer, now_ms)
        return peer

    def was_away(self, now_ms: int) -> None:
        """Take in that this process stood still: its own silence is no evidence against others."""
        self._outbox.counters["stalls"] += 1
        self._beliefs.suspend_verdicts(now_ms + self._profile.probe_interval_ms)

    def is_isolated(self, now_ms: int) -> bool:
        """Whether peers are known, and none was heard for half a suspicion time."""
        if all(peer.member.state is State.LEFT for peer in self._peers.values()):
            return False
        return now_ms - self._members.heard_ms > self._profile.suspicion_least_ms(self._members.reachable) // 2
