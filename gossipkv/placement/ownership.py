"""Ownership: the partitions of a version that a node has, as asked from it and kept over a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.placement.partition_set import PartitionSet


class Owner(NamedTuple):
    """A node that has partitions, and its address."""

    name: str
    uuid: bytes
    address: Address


class Ownership(NamedTuple):
    """The partitions of one identity that a node has ready."""

    owner: Owner
    partitions: PartitionSet
