"""Maps of one table, as edits make them."""

from __future__ import annotations

from gossipkv.register.configuration import AcceptorId, Acceptors
from gossipkv.register.metadata.known import ENTRY, KnownMap, generation_of, sequence_of, stamped
from gossipkv.register.metadata.operations import judge
from gossipkv.register.metadata.partitions import OPERATIONS, encode_partition, first_edits
from gossipkv.register.state import Base


def first_base(table, partitions, config, servers):
    """Return the first map of a table; `servers`: the nodes of its acceptors."""
    members = tuple(AcceptorId(node, 1) for node in servers)
    empty = Base(generation_of(config), sequence_of(config) - 1, acceptors=Acceptors(members, members))
    return empty.after(first_edits(table, partitions, config))


def edited(base, partitions):
    """Return the map after the next transaction, which sets the partitions at these keys, or deletes them (None)."""
    config = KnownMap(base).config + 1
    return base.after(
        [
            (ENTRY + key, None if partition is None else stamped(config, encode_partition(partition)))
            for key, partition in sorted(partitions.items())
        ]
    )


def judged(base, operations):
    """Return the map after a transaction of these operations, and the answers."""
    known = KnownMap(base)
    judgement = judge(known.view, base.size_bytes, operations, known.config + 1, OPERATIONS)
    return base.after(judgement.edits) if judgement.edits else base, judgement.answers
