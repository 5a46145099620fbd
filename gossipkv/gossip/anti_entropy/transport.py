"""The way of an exchange's messages: in envelopes, and only while it is clear who this node is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.messages import KIND, SENDER
from gossipkv.gossip.packets.prefix import Dropped

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address
    from gossipkv.gossip.membership.contact import Contact
    from gossipkv.gossip.membership.self_identity import SelfIdentity
    from gossipkv.gossip.membership.shared_state import SharedState

    Answered = Callable[[bytes | None, int], None]  # The reply's message, or None; now_ms.


@final
class Transport:
    """Sends and asks for an exchange."""

    __slots__ = ("_contact", "_identity", "_members", "_outbox", "_profile", "_timers")

    def __init__(self, state: SharedState, identity: SelfIdentity, contact: Contact) -> None:
        self._members = state.members
        self._profile = state.profile
        self._timers = state.timers
        self._outbox = state.outbox
        self._identity = identity
        self._contact = contact

    def send(self, to: Address, message: bytes) -> None:
        """Send one datagram."""
        if self._identity.speaks:
            self._outbox.send(to, message)

    def ask(self, to: Address, message: bytes, then: Answered) -> None:
        """Ask over TCP; `then` gets the reply, or None if there is none, and may raise `Malformed`."""
        if self._identity.speaks:
            self._outbox.ask(to, message, self._profile.ask_timeout_ms, partial(self._answered, then))
        else:
            self._timers.at(self._members.heard_ms, partial(then, None))  # As soon as timers run.

    def _answered(self, then: Answered, reply: bytes | None, now_ms: int) -> None:
        try:
            if reply is None:
                then(None, now_ms)
                return
            message = self._outbox.envelope.unwrap(reply)
            self._contact.hear(message[SENDER], now_ms)
            if message[KIND] == bytes((messages.SYNC,)):
                then(message, now_ms)
                return
        except (Dropped, Malformed):
            pass
        self._outbox.counters["bad_reply"] += 1
        then(None, now_ms)
