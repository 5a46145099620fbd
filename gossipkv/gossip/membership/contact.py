"""Contact: when this node heard any other node, and its caution after a silence.

A node that was cut off while its timers ran hears many suspicions at once, and finds its own suspicions confirmed and
long expired. Without a pause it would declare members dead before they can refute. So after a silence, or after a stall
of this process, it reads everything before it judges.

Alone, it takes far longer to find others dead than they take to find it dead, and nobody hears its verdicts. So its
requests do not wait for verdicts: after the time in which the others find one member dead, the node counts as cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.gossip.member import MemberState
from gossipkv.gossip.membership.lifeguard import silence_ms

if TYPE_CHECKING:
    from gossipkv.gossip.membership.beliefs import Beliefs
    from gossipkv.gossip.membership.members import MemberPeer
    from gossipkv.gossip.membership.shared_state import SharedState


@final
class Contact:
    """Notes when this node heard others, and suspends its verdicts after a silence."""

    __slots__ = ("_awake_ms", "_beliefs", "_id", "_members", "_outbox", "_peers", "_profile", "_silence_ms",
                 "is_cut_off")  # fmt: skip

    def __init__(self, state: SharedState, beliefs: Beliefs) -> None:
        self._members = state.members
        self._peers = state.members.peers
        self._id = state.members.own.id
        self._profile = state.profile
        self._outbox = state.outbox
        self._beliefs = beliefs
        self._silence_ms = silence_ms(state.profile)
        self._awake_ms = 0  # When the last stall of this process was noticed.
        self.is_cut_off = False  # True if none of the known peers was heard for a probe and a suspicion.

    def start(self, now_ms: int) -> None:
        """Start counting a silence."""
        self._members.hear(None, now_ms)

    def look(self, now_ms: int) -> None:
        """Note a silence that has lasted too long; to be called after all packets have been read."""
        most_ms = self._profile.probe_interval_ms + self._profile.suspicion_least_ms(self._members.reachable)
        silent_ms = now_ms - max(self._members.heard_ms, self._awake_ms)
        self.is_cut_off = silent_ms >= most_ms and self._has_peers()

    def hear(self, sender: bytes, now_ms: int) -> MemberPeer | None:
        """Note a packet from `sender`; return that peer, or None for a stranger."""
        peer = self._peers.get(sender)
        if peer is None and sender == self._id:
            return None  # This node asked itself at a second address: no other node was heard.
        if now_ms - self._members.heard_ms > self._silence_ms:
            self._beliefs.suspend_verdicts(now_ms + self._profile.probe_interval_ms)
            self._beliefs.accuse_again()
        self._members.hear(peer, now_ms)
        self.is_cut_off = False
        return peer

    def was_away(self, now_ms: int) -> None:
        """Suspend verdicts after a stall of this process: a silence during the stall is no evidence against others."""
        self._outbox.counters["stalls"] += 1
        self._awake_ms = now_ms
        self._beliefs.suspend_verdicts(now_ms + self._profile.probe_interval_ms)

    def is_isolated(self, now_ms: int) -> bool:
        """True if peers are known, and none was heard for half a suspicion time."""
        least_ms = self._profile.suspicion_least_ms(self._members.reachable)
        return now_ms - self._members.heard_ms > least_ms // 2 and self._has_peers()

    def _has_peers(self) -> bool:
        return any(peer.member.state is not MemberState.LEFT for peer in self._peers.values())
