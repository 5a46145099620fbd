"""What a core asks of its shell: the whole vocabulary.

A core is told what happened and the time, and leaves effects behind; the shell takes them at once and in order.  Time
is milliseconds of a clock that only goes forward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.errors import GossipKVError
    from gossipkv.gossip.member import Member, State


class Send(NamedTuple):
    """One datagram.  It may be lost, doubled, late."""

    to: Address
    packet: bytes


class Ask(NamedTuple):
    """One request over TCP; the core is told the reply, or that there was none, with `token`, once."""

    to: Address
    request: bytes
    token: int
    timeout_ms: int


class Store(NamedTuple):
    """Make this durable; the core is told when it is, with `token`, and does not act on it before."""

    epoch: int
    cluster_id: bytes
    token: int
    pinned: bool = False  # That the node is pinned from now on, too; False: whether it is stays as it was.
    drew: bool = False  # That this node drew the cluster id; False: what it drew before stays.


class Remember(NamedTuple):
    """Keep these addresses for the next start; whether that succeeds is of no matter to the core."""

    peers: tuple[Address, ...]


class Changed(NamedTuple):
    """A member is known in another way than before; `before` is None for a newcomer."""

    member: Member
    before: State | None


class Complain(NamedTuple):
    """Tell whoever runs this node; it goes on."""

    error: GossipKVError


class Stop(NamedTuple):
    """This node must not go on under its name or in its cluster: end it, and say why."""

    error: GossipKVError
    forget: bool = False  # What is kept of it is another node's: keep it no more.


Effect = Send | Ask | Store | Remember | Changed | Complain | Stop
