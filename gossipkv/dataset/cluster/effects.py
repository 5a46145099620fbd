"""What the core of a database asks of the node around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gossipkv.placement.identity import Identity
    from gossipkv.placement.ownership import Owner, Ownership
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.placement.seals import Sealed
    from gossipkv.placement.statement import DatabaseStatement, Statement


class Publish(NamedTuple):
    """Show this statement in the tree; where there is no room for it, say `refused`."""

    version: str
    statement: Statement


class Withdraw(NamedTuple):
    """Take the statement of a version back."""

    version: str


class PublishDatabase(NamedTuple):
    """Show what this node says of the database as a whole."""

    statement: DatabaseStatement


class Ask(NamedTuple):
    """Ask a member the direct question, over a connection on which `hello` is done; dial it, if there is none."""

    member: str
    identity: Identity


class Route(NamedTuple):
    """A member may be asked for these partitions of this identity from now on, and for no others of it."""

    identity: Identity
    owner: Owner
    partitions: PartitionSet  # Empty: for none.


class KeepActive(NamedTuple):
    """Write into ACTIVE who owns what of the active version, and on which files clients have it and others."""

    identity: Identity
    owners: tuple[Ownership, ...]
    sealed: tuple[Sealed, ...]


class KeepRefuted(NamedTuple):
    """Write down, durably, that these functions are refuted for a digest."""

    digest: str
    functions: tuple[str, ...]


class KeepOrders(NamedTuple):
    """Write down the orders that are known."""


class KeepRing(NamedTuple):
    """Write down whose ids the ring is made of."""


class BuildAnew(NamedTuple):
    """Drop these partitions and build them again: another's files differ, and nobody is sent here for them any more."""

    version: str
    partitions: PartitionSet


class Look(NamedTuple):
    """Look at the source soon, at a moment of the node's own: a newer version was heard of."""

    version: str


class Decide(NamedTuple):
    """Decide again what to do with the versions: a verdict has changed."""


Outward = Publish | Withdraw | PublishDatabase | Ask | Route  # Done by the node, for the cluster.
Inward = KeepActive | KeepRefuted | KeepOrders | KeepRing | BuildAnew | Look | Decide  # Done by the database itself.
Effect = Outward | Inward
