"""Effects that the core of a database requests from the node around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.ownership import Owner, Ownership
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.placement.seals import Sealed
    from gossipkv.placement.statement import DatabaseStatement, Statement


class Publish(NamedTuple):
    """Show this statement in the tree; if there is no room, call `refused`."""

    version: str
    statement: Statement


class Withdraw(NamedTuple):
    """Withdraw the statement of a version."""

    version: str


class PublishDatabase(NamedTuple):
    """Show the node's statement about the database as a whole."""

    statement: DatabaseStatement


class AskMember(NamedTuple):
    """Ask a member the direct question over a connection after `hello`; dial if there is none."""

    member: str
    identity: VersionIdentity


class OpenRoute(NamedTuple):
    """Route requests for exactly these partitions of the identity to a member from now on."""

    identity: VersionIdentity
    owner: Owner
    partitions: PartitionSet  # An empty set removes the route.


class KeepActive(NamedTuple):
    """Write the owners of the active version into ACTIVE, with the fixed checksums of all versions."""

    identity: VersionIdentity
    owners: tuple[Ownership, ...]
    sealed: tuple[Sealed, ...]


class KeepRefuted(NamedTuple):
    """Write down, durably, that these functions are refuted for a digest."""

    digest: str
    functions: tuple[str, ...]


class KeepOrders(NamedTuple):
    """Write down the known orders."""


class KeepRing(NamedTuple):
    """Write down the claims of the ring."""


class BuildAnew(NamedTuple):
    """Drop these partitions and rebuild them: another owner's files differ, and no node is routed here any more."""

    version: str
    partitions: PartitionSet


class ReadContents(NamedTuple):
    """Look at the source soon, after the node's own jitter, since a newer version was heard of."""

    version: str


class Decide(NamedTuple):
    """Decide again on the versions, since a verdict has changed."""


# The node carries these out towards the cluster.
Outward = Publish | Withdraw | PublishDatabase | AskMember | OpenRoute
# The database itself carries these out.
Inward = KeepActive | KeepRefuted | KeepOrders | KeepRing | BuildAnew | ReadContents | Decide
Effect = Outward | Inward
