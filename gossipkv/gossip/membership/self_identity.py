"""This node's own identity, and its reactions to statements about its name.

Such a statement comes from this node's past (it restarted, was suspected or lost its data), from another node's error,
or from a namesake. In its present epoch and place the node refutes by a higher incarnation. For a statement of an epoch
that it has not lived, it takes a higher epoch, which is durable before use. Statements from another place are looked
into first (`namesakes.py`).

A joining node looks before it *announces* itself, so a second node of a name does no harm. A node that was never in a
cluster ends if it hears of its uuid under any name: it lost its data and kept only its certificate, so it does not
know the promises that it made as that node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from gossipkv.errors import LocalError
from gossipkv.gossip.effects import Stop
from gossipkv.gossip.member import GONE, MAX_EPOCH, MAX_INCARNATION, Member, MemberState
from gossipkv.gossip.membership.namesakes import Namesakes
from gossipkv.gossip.packets import messages

if TYPE_CHECKING:
    from gossipkv.gossip.membership.lifeguard import Awareness
    from gossipkv.gossip.membership.rumours import Rumours
    from gossipkv.gossip.membership.shared_state import SharedState
    from gossipkv.gossip.packets.messages import MemberVerdict

ALIVE, SUSPECT, DEAD, LEFT = MemberState


class IdentityListener(Protocol):
    """Receiver of changes of this node's identity."""

    def on_own(self, *, now_ms: int) -> None:
        """Process a change of this node's own record."""

    def on_claimed_twice(self, other: Member | None) -> None:
        """Process that another node claims this node's name; None if no node does any more."""


@final
class SelfIdentity:
    """This node's own name, epoch and incarnation."""

    def __init__(
        self,
        state: SharedState,
        rumours: Rumours,
        awareness: Awareness,
        listener: IdentityListener,
        *,
        is_first: bool = False,
    ) -> None:
        self._members = state.members
        self._outbox = state.outbox
        self._rumours = rumours
        self._awareness = awareness
        self._listener = listener
        self._born = self._members.own.epoch if is_first else 0  # First epoch of this node; 0 if it has lived before.
        self._storing = 0  # The epoch that is being made durable.
        self._namesakes = Namesakes(state, self)
        self._waiting = False  # True if `introduce` was called while a claim or an epoch was pending.
        self.announced = False
        self._shown = False  # True if some node may know the present epoch, so that statements about it may be echoes.

    @property
    def settled(self) -> bool:
        """True if no claim of the name and no epoch is pending."""
        return not self._storing and self._namesakes.claim is None and not self._outbox.silent

    @property
    def speaks(self) -> bool:
        """True if others may hear published keys: no other node claims this epoch of the name."""
        claim = self._namesakes.claim
        is_mine = claim is None or claim.epoch != self._members.own.epoch
        return self.announced and not self._storing and is_mine

    def introduce(self, now_ms: int) -> None:
        """Announce this node as soon as no claim or epoch is pending; repeated calls do no harm."""
        if self.announced:
            return
        if not self.settled:
            self._waiting = True
            return
        self.announced = self._shown = True
        self._namesakes.announced(now_ms)
        self._tell_change(now_ms)

    def speak(self, now_ms: int) -> None:
        """Announce this node, if the announcement waited for a durable epoch."""
        self._settle(now_ms)

    def show(self) -> None:
        """Note that a node hears of this one before the announcement, so that its statements may come back."""
        self._shown = True

    def _settle(self, now_ms: int) -> None:
        if self._waiting and self.settled:
            self._waiting = False
            self.introduce(now_ms)

    def leave(self, now_ms: int) -> None:
        """Leave the cluster for good."""
        self._members.put_own(self._members.own._replace(state=LEFT))
        self._tell_change(now_ms)

    def _tell_change(self, now_ms: int) -> None:
        self._listener.on_own(now_ms=now_ms)
        if self.announced:
            own = self._members.own
            self._rumours.add(own.id, messages.record(own))

    def is_past(self, record: Member) -> bool:
        """Return True, and stop this node, if a RECORD with its uuid is of a life that it cannot have lived."""
        own = self._members.own
        if self.announced or not self._born or (record.id == own.id and self._born <= record.epoch <= own.epoch):
            return False
        uuid = own.uuid.hex()
        error = LocalError(
            f"the node {uuid} was in this cluster before, as {record.name!r} at {record.address}, and its "
            "data is not here, so this node cannot join as that node. Give this node the old data "
            "directory, or another certificate (`gossipkv certificates new DIR NAME --host HOST`)",
            {"uuid": uuid, "node": record.name, "other_address": str(record.address)},
        )
        self._outbox.effects.append(Stop(error, forget=True))
        return True

    def hear_record(self, record: Member, now_ms: int) -> None:
        """Process a RECORD of this node's name."""
        own = self._members.own
        if record.epoch < own.epoch and (self.announced or record.state in GONE):
            return
        if own.state is LEFT and record.epoch == own.epoch:
            return
        if record.address != own.address:
            self._namesakes.hear_claim(record, now_ms)
        elif record.epoch > own.epoch or (record.epoch == own.epoch and self._is_from_another_life(record)):
            self._renew(record.epoch)
        elif record.epoch == own.epoch:
            self._refute(record.state, record.incarnation, now_ms)

    def _is_from_another_life(self, record: Member) -> bool:
        return not self._shown or record.uuid != self._members.own.uuid or record.state is LEFT

    def hear_verdict(self, verdict: MemberVerdict, now_ms: int) -> None:
        """Process a VERDICT about this node's name; for another epoch a RECORD follows sooner or later."""
        own = self._members.own
        if verdict.epoch != own.epoch or own.state is LEFT or not self._shown:
            return
        if verdict.state is LEFT:
            self._renew(verdict.epoch)
        else:
            self._refute(verdict.state, verdict.incarnation, now_ms)

    def outlive(self, epoch: int) -> None:
        """Take a new epoch, since this epoch of the node cannot be saved."""
        own = self._members.own
        if own.epoch == epoch and own.state is not LEFT and self.announced:
            self._renew(epoch)

    def _refute(self, state: MemberState, incarnation: int, now_ms: int) -> None:
        """Refute a statement about this node in its epoch, if others would believe the statement."""
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
        if epoch >= MAX_EPOCH:
            self._outbox.counters["epoch_at_its_end"] += 1
            return
        if epoch < self._storing:
            return
        self._storing = new = epoch + 1

        def kept(now_ms: int) -> None:
            if self._storing == new:
                self._storing = 0
                self._shown = True  # Others hear of this epoch from this node alone.
                # The state stays: a node that has left goes on leaving.
                self._members.put_own(self._members.own._replace(epoch=new, incarnation=0))
                self._outbox.counters["epochs_renewed"] += 1
                self._tell_change(now_ms)
                self._settle(now_ms)

        self._outbox.store(kept, epoch=new)

    def on_looked(self, epoch: int, *, now_ms: int) -> None:
        """Continue above the epoch of a claim that was looked into and did not end this node."""
        if epoch >= self._members.own.epoch:
            self._renew(epoch)
        self._settle(now_ms)

    def on_claimed_twice(self, other: Member | None) -> None:
        """Pass on that another node claims this name; None if no node does any more."""
        self._listener.on_claimed_twice(other)

    def answer_who(self, message: bytes, now_ms: int) -> bytes | None:
        """Answer a question of a node that may have this node's name."""
        return self._namesakes.answer_who(message, now_ms)
