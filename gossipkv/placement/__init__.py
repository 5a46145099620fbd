"""Placement: which nodes hold a partition. All modules are pure: they are given ids, times and published statements.

Read in this order:

    partition.py      a table's partition: assignments, their states, invariants
    spread.py         the wanted map of a hash table
    measures.py       sizes and request rates of partitions; lately.py: recent changes of a range table's map
    ranges.py         moves and splits of a range table; ahead.py: splits before a time series grows
    moves.py          the next steps towards the wanted map
    shard_claim.py    a shard id for the ring, without a coordinator; ring.py: the partitions of a shard id
    identity.py       the identity of a version; seals.py: checksums of its files; partition_set.py
    statement.py      a node's statements about datasets, and their bytes; orders.py: pinned versions
    holders.py        the statements of all members; ownership.py; candidates.py: the order in which to ask
"""
