"""Reconnecting: addresses are kept for the next start, and some dead and lost members are greeted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.gossip.effects import Remember
from gossipkv.gossip.member import MemberState

if TYPE_CHECKING:
    from gossipkv.gossip.member import Member
    from gossipkv.gossip.membership.detector import Detector
    from gossipkv.gossip.membership.joining import SeedJoin
    from gossipkv.gossip.membership.shared_state import SharedState

REMEMBERED: Final = 64  # Addresses kept for the next start, of which one suffices.
GREETED: Final = 64  # Bounds the dead members greeted at a time.


@final
class Reconnecting:
    """Keeps addresses of peers, and greets dead ones."""

    __slots__ = ("_detector", "_is_remembering", "_joining", "_members", "_outbox", "_profile", "_random", "_state")

    def __init__(self, state: SharedState, detector: Detector, joining: SeedJoin) -> None:
        self._state = state
        self._members = state.members
        self._profile = state.profile
        self._random = state.random
        self._outbox = state.outbox
        self._detector = detector
        self._joining = joining
        self._is_remembering = False

    def start(self, now_ms: int) -> None:
        """Start to greet dead members from time to time."""
        self._state.timers.at(self._state.later(now_ms, self._profile.reconnect_interval_ms), self._greet_the_dead)

    def on_forgotten(self, member: Member, now_ms: int) -> None:
        """Keep the address of a forgotten dead member, which may live behind a long partition."""
        if member.state is MemberState.DEAD:
            self._joining.lose(member.address)
            self.remember_soon(now_ms)

    def remember_soon(self, now_ms: int) -> None:
        """Keep the addresses of peers for the next start, after a delay in which more may become known."""
        if not self._is_remembering:
            self._is_remembering = True
            self._state.timers.at(now_ms + self._profile.probe_interval_ms, self._remember)

    def _remember(self, _now_ms: int) -> None:
        """Keep addresses: first of reachable peers, then of peers that may be found again."""
        self._is_remembering = False
        peers = [peer.member.address for peer in self._members.draw(self._random, REMEMBERED)]
        if peers:
            peers += [
                peer.member.address for peer in self._members.unreachable() if peer.member.state is MemberState.DEAD
            ]
            peers += self._joining.unseen
            self._outbox.effects.append(Remember(tuple(dict.fromkeys(peers))[:REMEMBERED]))

    def _greet_the_dead(self, now_ms: int) -> None:
        """Greet some dead members, which may live behind a partition that has healed.

        Whatever the number of dead members, all nodes together send each about three pings in an interval, and ask it
        once over TCP.
        """
        self.start(now_ms)
        if self._members.own.state is MemberState.LEFT:
            return
        self._joining.look_for_lost(now_ms)
        dead = [peer for peer in self._members.unreachable() if peer.member.state is MemberState.DEAD]
        count = min(GREETED, len(dead), -(-3 * len(dead) // self._members.reachable))
        for _ in range(count):
            place = int(self._random.random() * len(dead))
            self._detector.greet(dead[place])
            if self._random.random() * self._members.reachable * count < len(dead):
                self._joining.look(dead[place].member.address, now_ms)
            dead[place] = dead[-1]
            dead.pop()
