"""Namesakes: other nodes of this node's name, and which of the two stops.

A RECORD of this name at another place comes from this node's past there, from another node, or from a liar. So the node
asks there (WHO). Without an answer it takes an epoch above the claim's. With an answer the node that announced itself
later stops (the *younger*). If the delay of the question could reverse the order, uuid and address decide.

Plain packets can be forged, so only sealed answers stop an *established* node: one that announced itself so long ago
that all members know it. So two established nodes of one name may both go on (a healed partition, a copied directory).
If a claim returns after it was outdone, a live node is behind it, and the name is *claimed twice*. The node then warns
its operator and all members, and looks again after rests that double up to an hour, since each look may cost a durable
epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from gossipkv.errors import LocalError
from gossipkv.gossip.effects import Complain, Stop
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.messages import KIND, SENDER, Who
from gossipkv.gossip.packets.prefix import DroppedPacket, is_sealed

if TYPE_CHECKING:
    from gossipkv.gossip.member import Member
    from gossipkv.gossip.membership.shared_state import SharedState

TRIES: Final = 2  # Questions to an address before it counts as abandoned.
MAX_REST_MS: Final = 3_600_000  # Longest rest between two looks at claims of the name.


class NamesakeListener(Protocol):
    """Receiver of the results of claims."""

    def on_looked(self, epoch: int, *, now_ms: int) -> None:
        """Process the result of a look at a claim in `epoch`: this node's epoch must become higher."""

    def on_claimed_twice(self, other: Member | None) -> None:
        """Process that another node claims the name; None if no node does any more."""


def must_stop(asked: Who, other: Who, waited_ms: int, *, slack_ms: int, loses: bool) -> bool:
    """Return True if the asker is the younger of two nodes of one name, `waited_ms` after its question.

    The asker knows the difference of the ages to within its waiting time, and uses its own age at the arrival of the
    answer, so that it never underestimates its age. No question waits longer than `slack_ms`, so not both nodes
    stop. A node that stops by age is younger by more than the slack. Hence the other finds itself older by more than
    the slack, and goes on whatever its uuid. `loses`: True if the asker loses by uuid and address.
    """
    if not (asked.age_ms and other.age_ms):
        return bool(other.age_ms) or (not asked.age_ms and loses)
    elder_by_ms = asked.age_ms + waited_ms - other.age_ms
    return elder_by_ms < -slack_ms or (elder_by_ms <= slack_ms and loses)


@final
class Namesakes:
    """Looks into claims of this node's name from other places, one at a time."""

    def __init__(self, state: SharedState, listener: NamesakeListener) -> None:
        self._members = state.members
        self._profile = state.profile
        self._random = state.random
        self._timers = state.timers
        self._outbox = state.outbox
        self._listener = listener
        self._announced_ms: int | None = None
        self._claim: Member | None = None  # The latest claim that was not looked into yet, or is just now.
        self._asking = self._waits = False  # A question is under way; a look waits for the end of the rest.
        self._rest_ms = self._rests_until_ms = 0
        # This node's epoch above earlier claims; a later claim of at least this epoch has a live node behind it.
        self._outdone = 0
        self._twin: Member | None = None  # The other node while the name is claimed twice.
        self._twin_until_ms = 0
        self._sequence = -1  # Sequence of the last question.
        self._is_me = False  # True if the last question came back to this node.

    @property
    def claim(self) -> Member | None:
        """The claim of the name that was not looked into yet."""
        return self._claim

    def announced(self, now_ms: int) -> None:
        """Start to count this node's age."""
        self._announced_ms = now_ms

    def _age_ms(self, now_ms: int) -> int:
        """Return the time since this node announced itself; 0 if it has not."""
        return 0 if self._announced_ms is None else max(1, now_ms - self._announced_ms)

    def hear_claim(self, record: Member, now_ms: int) -> None:
        """Look into a RECORD of this name at another place, now or after a rest."""
        claim = self._claim
        if claim is None or (record.epoch, record.address) > (claim.epoch, claim.address):
            self._claim = record
        self._look_soon(now_ms)

    def _look_soon(self, now_ms: int) -> None:
        if self._asking or self._waits:
            return
        if now_ms < self._rests_until_ms and self._announced_ms is not None:
            self._waits = True
            self._timers.at(self._rests_until_ms, self._rested)
        else:
            self._look(now_ms)

    def _rested(self, now_ms: int) -> None:
        self._waits = False
        if self._claim is not None and self._claim.epoch < self._members.own.epoch:
            self._claim = None  # This node's epoch outdid the claim in the meantime.
        self._look(now_ms)

    def _look(self, now_ms: int) -> None:
        record = self._claim or self._twin
        if record is None:
            return
        self._asking = True
        if now_ms - self._rests_until_ms >= MAX_REST_MS:
            self._rest_ms = self._outdone = 0
        self._rest_ms = min(max(self._profile.probe_interval_ms, 2 * self._rest_ms), MAX_REST_MS)
        self._rests_until_ms = now_ms + self._rest_ms
        self._ask(record, TRIES, now_ms)

    def _ask(self, record: Member, tries: int, now_ms: int) -> None:
        own = self._members.own
        self._sequence = int(self._random.random() * (1 << 32))
        self._is_me = False
        asked = Who(self._sequence, own.uuid, own.epoch, self._age_ms(now_ms))
        asked_ms = now_ms

        def answered(reply: bytes | None, now_ms: int) -> None:
            other = self._read(reply)
            if other is not None and reply is not None and not self._is_me:
                self._compare(record, asked, other, now_ms - asked_ms, sealed=is_sealed(reply), now_ms=now_ms)
            elif other is None and tries > 1:
                self._timers.at(
                    now_ms + self._profile.probe_timeout_ms, lambda now_ms: self._ask(record, tries - 1, now_ms)
                )
            else:  # No node answered, or this node asked itself at a second address of its own.
                self._conclude(record, None, now_ms)

        question = messages.who(messages.WHO, own.id, asked)
        self._outbox.ask(record.address, question, self._profile.probe_interval_ms, answered)

    def _read(self, reply: bytes | None) -> Who | None:
        """Return the statement of a node of this name at the other address; None if there is none."""
        if reply is None:
            return None
        try:
            message = self._outbox.envelope.unwrap(reply)
            if message[KIND] != bytes((messages.ME,)) or message[SENDER] != self._members.own.id:
                return None
            other = messages.read_who(message)
        except (DroppedPacket, Malformed):
            self._outbox.counters["bad_reply"] += 1
            return None
        return other if other.sequence == self._sequence else None

    def _compare(self, record: Member, asked: Who, other: Who, waited_ms: int, *, sealed: bool, now_ms: int) -> None:
        own = self._members.own
        slack_ms = 2 * self._profile.probe_interval_ms
        loses = (own.uuid, own.address) > (other.uuid, record.address)
        may_stop = sealed or self._age_ms(now_ms) < self._profile.converge_ms
        if may_stop and must_stop(asked, other, waited_ms, slack_ms=slack_ms, loses=loses):
            why = "this node is the younger and stops. Give each node its own name and data directory"
            self._outbox.effects.append(Stop(self._error(record, why)))
        else:
            # The other node finds out by itself if it must stop: it asks when it hears of this node's epoch.
            self._conclude(record, other, now_ms)

    def _conclude(self, record: Member, other: Who | None, now_ms: int) -> None:
        self._asking = False
        epoch = max(record.epoch, 0 if other is None else other.epoch)
        has_ended = self._twin is not None and now_ms >= self._twin_until_ms
        if other is not None:
            self._mark(record, until_ms=now_ms)  # A live node answers the next time too.
        elif has_ended:
            self._twin = None
            self._listener.on_claimed_twice(None)
        elif 0 < self._outdone <= record.epoch:
            # Allow for the other node's rest, this node's rest and a delay.
            self._mark(record, until_ms=now_ms + 3 * MAX_REST_MS)
        if self._claim is not None and self._claim.epoch <= epoch:
            self._claim = None
        if epoch >= self._members.own.epoch:
            # Raise the epoch by one or two, since two nodes that outdo each other by equal steps would never stop.
            epoch += self._outdone > 0 and self._random.random() < 1 / 2
            self._outdone = epoch + 1
        self._listener.on_looked(epoch, now_ms=now_ms)
        if self._claim is not None or self._twin is not None:
            self._look_soon(now_ms)

    def _mark(self, record: Member, *, until_ms: int) -> None:
        is_new = self._twin is None or self._twin.address != record.address
        self._twin, self._twin_until_ms = record, until_ms
        if is_new:
            why = "this node continues. Give each node its own name and data directory"
            self._outbox.effects.append(Complain(self._error(record, why)))
            self._listener.on_claimed_twice(record)

    def _error(self, record: Member, advice: str) -> LocalError:
        own = self._members.own
        return LocalError(
            f"two nodes are called {own.name!r}, this node at {own.address} and another at {record.address}: {advice}",
            {"node": own.name, "address": str(own.address), "other_address": str(record.address)},
        )

    def answer_who(self, message: bytes, now_ms: int) -> bytes | None:
        """Answer a question of a node that may have this node's name."""
        own = self._members.own
        asked = messages.read_who(message)
        if message[SENDER] != own.id:
            self._outbox.counters["not_for_me"] += 1
            return None
        if asked.sequence == self._sequence:
            self._is_me = True
        return messages.who(messages.ME, own.id, Who(asked.sequence, own.uuid, own.epoch, self._age_ms(now_ms)))
