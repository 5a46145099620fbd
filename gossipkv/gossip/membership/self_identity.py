"""Who I am, and what I do when others say something about my name.

What is said of my name was said by my own past (I restarted, was suspected, lost my data), by someone's mistake about
me, or by another node of that name.  In my present epoch and place I refute, by a higher incarnation.  If it is from
an epoch that I have not lived, I take a higher one, kept before it is used.  If it is from another place, that is
looked into first (`namesakes.py`).

A node that joins looks before it *announces* itself, so a second node of a name harms nobody.  Nor does one that has
lost its data, and has its uuid from a certificate that it had before: what is said of that uuid under any name ends a
node that was never of a cluster.  What it has promised to others as that node it does not know any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from gossipkv.errors import LocalError
from gossipkv.gossip.effects import Stop
from gossipkv.gossip.member import GONE, MAX_EPOCH, MAX_INCARNATION, Member, State
from gossipkv.gossip.membership.namesakes import Namesakes
from gossipkv.gossip.packets import messages

if TYPE_CHECKING:
    from gossipkv.gossip.membership.lifeguard import Awareness
    from gossipkv.gossip.membership.rumours import Rumours
    from gossipkv.gossip.membership.shared_state import SharedState
    from gossipkv.gossip.packets.messages import Verdict

ALIVE, SUSPECT, DEAD, LEFT = State


class Listener(Protocol):
    """Who must know when this node is something else than before."""

    def on_own(self, *, now_ms: int) -> None:
        """This node is known in another way from now on."""

    def on_claimed_twice(self, other: Member | None) -> None:
        """That other node claims this one's name, or no longer anybody does."""


@final
class SelfIdentity:
    """This node's own name, epoch and incarnation."""

    __slots__ = (
        "_awareness",
        "_born",
        "_listener",
        "_members",
        "_namesakes",
        "_outbox",
        "_rumours",
        "_shown",
        "_storing",
        "_waiting",
        "announced",
    )

    def __init__(
        self, state: SharedState, rumours: Rumours, awareness: Awareness, listener: Listener, *, is_first: bool = False
    ) -> None:
        self._members = state.members
        self._outbox = state.outbox
        self._rumours = rumours
        self._awareness = awareness
        self._listener = listener
        self._born = self._members.own.epoch if is_first else 0  # My first epoch; 0: I have lived before.
        self._storing = 0  # The epoch that is being kept.
        self._namesakes = Namesakes(state, self)
        self._waiting = False  # `announce` was asked for while something was unsettled.
        self.announced = False
        self._shown = False  # Somebody may know me in my present epoch: what is said of it may be an echo.

    @property
    def settled(self) -> bool:
        """Whether nothing about my name is to be looked into or kept."""
        return not self._storing and self._namesakes.claim is None and not self._outbox.silent

    @property
    def speaks(self) -> bool:
        """Whether others may hear what I publish: this epoch of my name is nobody else's."""
        claim = self._namesakes.claim
        is_mine = claim is None or claim.epoch != self._members.own.epoch
        return self.announced and not self._storing and is_mine

    def introduce(self, now_ms: int) -> None:
        """Announce me as soon as nothing speaks against it; again and again does no harm."""
        if self.announced:
            return
        if not self.settled:
            self._waiting = True
            return
        self.announced = self._shown = True
        self._namesakes.announced(now_ms)
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

    def is_past(self, record: Member) -> bool:
        """Whether a RECORD that has my uuid is of a life that I cannot have lived: then I end."""
        own = self._members.own
        if self.announced or not self._born or (record.id == own.id and self._born <= record.epoch <= own.epoch):
            return False
        uuid = own.uuid.hex()
        error = LocalError(
            f"the node {uuid} was in this cluster already, as {record.name!r} at {record.address}, and its data is not "
            "here: as that node this one cannot join. Give it its data directory, or another certificate "
            "(`gossipkv certificates new DIR NAME --host HOST`)",
            {"uuid": uuid, "node": record.name, "other_address": str(record.address)},
        )
        self._outbox.effects.append(Stop(error, forget=True))
        return True

    def hear_record(self, record: Member, now_ms: int) -> None:
        """Hear a RECORD of my own name."""
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

    def on_looked(self, epoch: int, *, now_ms: int) -> None:
        """A claim of my name was looked into, and did not end me: I live on above it."""
        if epoch >= self._members.own.epoch:
            self._renew(epoch)
        self._settle(now_ms)

    def on_claimed_twice(self, other: Member | None) -> None:
        """That other node claims my name, or no longer anybody does."""
        self._listener.on_claimed_twice(other)

    def answer_who(self, message: bytes, now_ms: int) -> bytes | None:
        """Answer one that may have my name."""
        return self._namesakes.answer_who(message, now_ms)
