"""Which node has which partitions of a version: what one is asked for, and what is remembered over a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.placement.partition_set import PartitionSet


class Owner(NamedTuple):
    """A node that has partitions of something, and where it is reached."""

    name: str
    uuid: bytes
    address: Address


class Ownership(NamedTuple):
    """The partitions of one identity that a node has ready."""

    owner: Owner
    partitions: PartitionSet
