"""Effects: everything that a core asks of its shell.

A core is told events and the time, and leaves effects behind; the shell performs them at once and in order. Times are
milliseconds of a monotonic clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.errors import GossipKVError
    from gossipkv.gossip.member import Member, MemberState


class SendDatagram(NamedTuple):
    """One datagram. It may be lost, duplicated or late."""

    to: Address
    packet: bytes


class AskOverTcp(NamedTuple):
    """One request over TCP. The core is told once, with `token`, the reply or that none came."""

    to: Address
    request: bytes
    token: int
    timeout_ms: int


class StoreDurably(NamedTuple):
    """State to make durable. The core is told with `token` when it is durable, and does not act on it before."""

    epoch: int
    cluster_id: bytes
    token: int
    pinned: bool = False  # True: the node is pinned from now on. False: leave the kept value unchanged.
    drew: bool = False  # True: this node drew the cluster id. False: leave the kept value unchanged.


class Remember(NamedTuple):
    """Addresses to keep for the next start. The core does not depend on whether that succeeds."""

    peers: tuple[Address, ...]


class MemberChanged(NamedTuple):
    """A member changed state; `before` is None for a new member."""

    member: Member
    before: MemberState | None


class Complain(NamedTuple):
    """A warning for the operator; the node goes on."""

    error: GossipKVError


class Stop(NamedTuple):
    """An order to end this node: it must not go on under its name or in its cluster."""

    error: GossipKVError
    forget: bool = False  # The kept state belongs to another node: delete it.


Effect = SendDatagram | AskOverTcp | StoreDurably | Remember | MemberChanged | Complain | Stop
