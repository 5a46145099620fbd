"""Who I am, and what I do when others say something about my name.

What is said of my name was said by my own past (I restarted, was suspected, lost my data), by someone's mistake about
me, or by another node of that name.  In my present epoch and place I refute, by a higher incarnation.  If it is from
an epoch that I have not lived, I take a higher one, kept before it is used.  If it is from another place, I ask there
first (WHO): nobody answers, so it was my past; somebody does, so the name is claimed twice, and the younger of the two
stops, naming both addresses.

A node that joins asks before it *announces* itself, so a second node of a name harms nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from gossipkv.errors import LocalError
from gossipkv.gossip.effects import Stop
from gossipkv.gossip.member import GONE, MAX_EPOCH, MAX_INCARNATION, Member, State
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.messages import KIND, SENDER, Who
from gossipkv.gossip.packets.prefix import Dropped

if TYPE_CHECKING:
    from gossipkv.gossip.membership.lifeguard import Awareness
    from gossipkv.gossip.membership.rumours import Rumours
    from gossipkv.gossip.membership.shared_state import SharedState
    from gossipkv.gossip.packets.messages import Verdict

ALIVE, SUSPECT, DEAD, LEFT = State
TRIES: Final = 2  # Questions to an address before it counts as one where nobody is.


class Listener(Protocol):
    """Who must know when this node is something else than before."""

    def on_own(self, *, now_ms: int) -> None:
        """This node is known in another way from now on."""


@final
class SelfIdentity:
    """This node's own name, epoch and incarnation."""

    __slots__ = (
        "_answered_ms",
        "_answered_uuid",
        "_awareness",
        "_challenged",
        "_is_me",
        "_listener",
        "_members",
        "_outbox",
        "_profile",
        "_random",
        "_rumours",
        "_sequence",
        "_shown",
        "_started_ms",
        "_storing",
        "_timers",
        "_waiting",
        "announced",
    )

    def __init__(self, state: SharedState, rumours: Rumours, awareness: Awareness, listener: Listener) -> None:
        self._members = state.members
        self._profile = state.profile
        self._random = state.random
        self._timers = state.timers
        self._outbox = state.outbox
        self._rumours = rumours
        self._awareness = awareness
        self._listener = listener
        self._storing = 0  # The epoch that is being kept.
        self._challenged: Member | None = None  # The other claim that I look into.
        self._sequence = -1  # Of my last question.
        self._answered_ms, self._answered_uuid = 0, b""  # When I last answered another of my name, and whom.
        self._is_me = False  # The last question came back to me.
        self._waiting = False  # `announce` was asked for while something was unsettled.
        self.announced = False
        self._shown = False  # Somebody may know me in my present epoch: what is said of it may be an echo.
        self._started_ms = 0

    @property
    def settled(self) -> bool:
        """Whether nothing about my name is being looked into or kept."""
        return not self._storing and self._challenged is None and not self._outbox.silent

    @property
    def speaks(self) -> bool:
        """Whether others may hear what I publish: it is clear that this epoch of my name is mine."""
        return self.announced and self.settled

    def start(self, now_ms: int) -> None:
        """Begin to count how long this node is up."""
        self._started_ms = now_ms

    def introduce(self, now_ms: int) -> None:
        """Announce me as soon as nothing speaks against it; again and again does no harm."""
        if self.announced:
            return
        if not self.settled:
            self._waiting = True
            return
        self.announced = self._shown = True
        self._tell_change(now_ms)

    def speak(self, now_ms: int) -> None:
        """Announce me, if that waited for the epoch of this start to be kept."""
        self._settle(now_ms)

    def show(self) -> None:
        """Somebody is told of me although I have not announced myself: I may hear of that from others."""
        self._shown = True

    def _settle(self, now_ms: int) -> None:
        if self._waiting and self.settled:
            self._waiting = False
            self.introduce(now_ms)

    def leave(self, now_ms: int) -> None:
        """Go for good."""
        self._members.put_own(self._members.own._replace(state=LEFT))
        self._tell_change(now_ms)

    def _tell_change(self, now_ms: int) -> None:
        """Tell that this node is something else than before."""
        self._listener.on_own(now_ms=now_ms)
        if self.announced:
            own = self._members.own
            self._rumours.add(own.id, messages.record(own))

    def hear_record(self, record: Member, now_ms: int) -> None:
        """Hear a RECORD of my own name."""
        own = self._members.own
        if record.epoch < own.epoch and (self.announced or record.state in GONE):
            return
        if own.state is LEFT and record.epoch == own.epoch:
            return
        if record.address != own.address:
            self._challenge(record, now_ms)
        elif record.epoch > own.epoch or (record.epoch == own.epoch and self._is_from_another_life(record)):
            self._renew(record.epoch)
        elif record.epoch == own.epoch:
            self._refute(record.state, record.incarnation, now_ms)

    def _is_from_another_life(self, record: Member) -> bool:
        return not self._shown or record.uuid != self._members.own.uuid or record.state is LEFT

    def hear_verdict(self, said: Verdict, now_ms: int) -> None:
        """Hear a VERDICT about my own name; one of another epoch comes with a record sooner or later."""
        own = self._members.own
        if said.epoch != own.epoch or own.state is LEFT or not self._shown:
            return
        if said.state is LEFT:
            self._renew(said.epoch)
        else:
            self._refute(said.state, said.incarnation, now_ms)

    def outlive(self, epoch: int) -> None:
        """Hear that this epoch of mine cannot be saved."""
        own = self._members.own
        if own.epoch == epoch and own.state is not LEFT and self.announced:
            self._renew(epoch)

    def _refute(self, state: State, incarnation: int, now_ms: int) -> None:
        """Refute what was said of me in my epoch, if it would be believed."""
        own = self._members.own
        if (incarnation, state) <= (own.incarnation, own.state):
            return
        if incarnation >= MAX_INCARNATION:
            self._renew(own.epoch)
            return
        self._members.put_own(own._replace(incarnation=incarnation + 1))
        self._outbox.counters["refutations"] += 1
        self._awareness.worse(1)
        self._tell_change(now_ms)

    def _renew(self, epoch: int) -> None:
        """Live on in an epoch above this one."""
        if epoch >= MAX_EPOCH:
            self._outbox.counters["epoch_at_its_end"] += 1
            return
        if epoch < self._storing:
            return
        self._storing = new = epoch + 1

        def kept(now_ms: int) -> None:
            if self._storing == new:
                self._storing = 0
                self._shown = True  # Nobody has heard of this epoch but from me.
                # In the state that it was in: who has left goes on leaving.
                self._members.put_own(self._members.own._replace(epoch=new, incarnation=0))
                self._outbox.counters["epochs_renewed"] += 1
                self._tell_change(now_ms)
                self._settle(now_ms)

        self._outbox.store(kept, epoch=new)

    # The name claimed twice

    def _challenge(self, record: Member, now_ms: int) -> None:
        if self._challenged is not None:
            return
        self._challenged = record
        self._ask(record, TRIES, now_ms)

    def _ask(self, record: Member, tries: int, now_ms: int) -> None:
        own = self._members.own
        self._sequence = int(self._random.random() * (1 << 32))
        self._is_me = False
        me = Who(self._sequence, own.uuid, own.epoch, now_ms - self._started_ms)

        def answered(reply: bytes | None, now_ms: int) -> None:
            if self._challenged is not record:
                return
            other = self._read(reply)
            if other is not None:
                self._compare(record, me, other, now_ms)
            elif tries > 1:
                self._timers.at(
                    now_ms + self._profile.probe_timeout_ms, lambda now_ms: self._ask(record, tries - 1, now_ms)
                )
            else:
                self._conclude(record, now_ms)

        question = messages.who(messages.WHO, own.id, me)
        self._outbox.ask(record.address, question, self._profile.probe_interval_ms, answered)

    def _read(self, reply: bytes | None) -> Who | None:
        """What the one at the other address says, if it is one of my name."""
        if reply is None:
            return None
        try:
            message = self._outbox.envelope.unwrap(reply)
            if message[KIND] != bytes((messages.ME,)) or message[SENDER] != self._members.own.id:
                return None
            other = messages.read_who(message)
        except (Dropped, Malformed):
            self._outbox.counters["bad_reply"] += 1
            return None
        return other if other.sequence == self._sequence else None

    def _compare(self, record: Member, me: Who, other: Who, now_ms: int) -> None:
        own = self._members.own
        if self._is_me:  # I asked myself: the other address is mine too.
            self._conclude(record, now_ms)
            return
        if self._is_elder(record, me, other):
            # I am the elder: the other one hears so when it asks me, and it asks when it hears of my epoch.
            self._conclude(record._replace(epoch=max(record.epoch, other.epoch)), now_ms)
            return
        self._outbox.effects.append(
            Stop(
                LocalError(
                    f"two nodes are called {own.name!r}: this one at {own.address} and an older one at "
                    f"{record.address}; this one stops. Give each node a name and a data directory of its own",
                    {"node": own.name, "address": str(own.address), "other_address": str(record.address)},
                )
            )
        )

    def _is_elder(self, record: Member, me: Who, other: Who) -> bool:
        """Whether the other one started later.

        Each adds the way of its question to the age of the other, so two that started at almost one time and ask each
        other might both stop.  But then each has answered the other before it hears the answer, not longer ago than
        a question waits: so in that case something decides that both see alike.  If one of them alone is in it, both
        may go on, and ask again.
        """
        mine, theirs = (me.uuid, self._members.own.address), (other.uuid, record.address)
        asked_ms = self._started_ms + me.uptime_ms
        if self._answered_uuid == other.uuid and self._answered_ms >= asked_ms - self._profile.probe_interval_ms:
            return mine < theirs
        return (-me.uptime_ms, mine) < (-other.uptime_ms, theirs)

    def _conclude(self, record: Member, now_ms: int) -> None:
        self._challenged = None
        if record.epoch >= self._members.own.epoch:
            self._renew(record.epoch)
        self._settle(now_ms)

    def answer_who(self, message: bytes, now_ms: int) -> bytes | None:
        """Answer one that may have my name."""
        own = self._members.own
        asked = messages.read_who(message)
        if message[SENDER] != own.id:
            self._outbox.counters["not_for_me"] += 1
            return None
        uptime_ms = now_ms - self._started_ms
        sequence = asked.sequence
        if sequence == self._sequence:
            self._is_me = True
        else:
            self._answered_ms, self._answered_uuid = now_ms, asked.uuid
        return messages.who(messages.ME, own.id, Who(sequence, own.uuid, own.epoch, uptime_ms))
