"""News in flight: on every outgoing packet, and in packets of its own while there is news.

A rumour at a node that had none goes out at once, and then to a few members in each interval until it was sent often
enough. So news crosses the cluster in a few hops, and a flood of news costs no more packets.

There is one rumour for each subject: a newer statement replaces the older and starts anew, so the queue is bounded by
the number of members or keys. The rumour sent the fewest times goes first, of those the newest. So in a flood every
rumour goes out once before any goes out twice.

Membership and tree get half of a packet each, and may use the room that the other leaves. So neither a flood of
suspicions nor a flood of published keys delays the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from gossipkv.gossip.membership.timers import NEVER
from gossipkv.gossip.packets import messages

if TYPE_CHECKING:
    from gossipkv.gossip.membership.members import MemberPeer
    from gossipkv.gossip.membership.shared_state import SharedState

AT_ONCE: Final = 0

# Up to this many parts that do not fit are skipped in favour of smaller ones.
_PASSED_BY: Final = 8


@final
class Rumours:
    """Parts of packets, by subject."""

    __slots__ = ("_sent", "_waiting", "size")

    def __init__(self) -> None:
        self._waiting: list[dict[bytes, bytes]] = []  # Indexed by the number of times sent; the newest is last.
        self._sent: dict[bytes, int] = {}
        self.size = 0  # Total size in bytes.

    def __len__(self) -> int:
        return len(self._sent)

    def __contains__(self, subject: bytes) -> bool:
        return subject in self._sent

    def add(self, subject: bytes, part: bytes) -> None:
        """Start to spread this part, instead of an older part about the same subject."""
        self.remove(subject)
        if not self._waiting:
            self._waiting.append({})
        self._waiting[0][subject] = part
        self._sent[subject] = 0
        self.size += len(part)

    def remove(self, subject: bytes) -> None:
        """Stop spreading the part about this subject."""
        times = self._sent.pop(subject, None)
        if times is not None:
            self.size -= len(self._waiting[times].pop(subject))

    def take(self, room: int, limit: int) -> list[bytes]:
        """Take parts for a packet, of at most `room` bytes together; drop those that were now sent `limit` times."""
        chosen: list[tuple[bytes, bytes, int]] = []
        passed_by = 0
        for times, rumours in enumerate(self._waiting):
            for subject in reversed(rumours):
                part = rumours[subject]
                if len(part) <= room:
                    room -= len(part)
                    chosen.append((subject, part, times))
                else:
                    passed_by += 1
                    if passed_by > _PASSED_BY:
                        break
            if passed_by > _PASSED_BY:
                break
        for subject, part, times in chosen:
            del self._waiting[times][subject]
            self._keep(subject, part, times + 1, limit)
        return [part for _, part, _ in chosen]

    def _keep(self, subject: bytes, part: bytes, times: int, limit: int) -> None:
        if times >= limit:
            del self._sent[subject]
            self.size -= len(part)
            assert bool(self.size) is bool(self._sent), (self.size, len(self._sent))
            return
        while len(self._waiting) <= times:
            self._waiting.append({})
        self._waiting[times][subject] = part
        self._sent[subject] = times


class Speaker(Protocol):
    """The identity of this node."""

    @property
    def speaks(self) -> bool:
        """True if others may hear statements that depend on the identity."""


@final
class Spreading:
    """Adds rumours to messages, and sends packets while there are rumours."""

    __slots__ = ("_first", "_members", "_next_ms", "_outbox", "_profile", "_random", "_room", "_second", "_speaker")

    def __init__(self, state: SharedState, speaker: Speaker, first: Rumours, second: Rumours) -> None:
        self._members = state.members
        self._profile = state.profile
        self._random = state.random
        self._outbox = state.outbox
        self._room = state.message_bytes
        self._speaker = speaker
        self._first = first
        self._second = second
        self._next_ms = NEVER  # When to send to some members again; never while there is no news.

    @property
    def due_ms(self) -> int:
        """Time at which to call `wake`: at once if news is new after an interval without any."""
        if self._next_ms == NEVER and (self._first.size or self._second.size) and self._has_news():
            return AT_ONCE
        return self._next_ms

    def _has_news(self) -> bool:
        return bool(self._first.size or self._second.size) and self._members.reachable > 1 and self._speaker.speaks

    def laden(self, message: bytes) -> bytes:
        """Return a message with as much news as fits."""
        first, second = self._first, self._second
        if not (first.size or second.size) or not self._speaker.speaks:
            return message
        room = self._room - len(message)
        if room <= 0:
            return message
        limit = self._profile.retransmits(self._members.reachable)
        parts = first.take(max(room // 2, room - second.size), limit)
        parts += second.take(room - sum(map(len, parts)), limit)
        laden = message + b"".join(parts)
        assert len(laden) <= self._room, (len(laden), self._room)
        return laden

    def laden_for(self, peer: MemberPeer, message: bytes) -> bytes:
        """Return a message to a peer with news; a peer that is not alive here first gets its own record."""
        if not peer.alive and self._profile.lifeguard:
            message += messages.record(peer.member)
        return self.laden(message)

    def wake(self, now_ms: int) -> None:
        """Send the news to some members."""
        if self._has_news():
            self.tell(self._profile.gossip_members)
            self._next_ms = now_ms + self._profile.gossip_interval_ms
        else:
            self._next_ms = NEVER

    def tell(self, members: int) -> None:
        """Send the news to so many members now."""
        head = messages.gossip(self._members.own.id)
        for peer in self._members.draw(self._random, members):
            message = self.laden(head)
            if len(message) == len(head):
                break
            self._outbox.send(peer.member.address, message)
