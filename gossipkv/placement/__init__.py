"""Placement: which nodes hold a partition. All modules are pure: they are given ids, times and published statements.

Read in this order:

    partition.py      a table's partition: assignments, their states, invariants
    measures.py       sizes and request rates of partitions
    spread.py         the wanted map of a hash table
    moves.py          the next steps towards the wanted map
    lately.py         recent changes of a range table's map
    ranges.py         moves and splits of a range table
    ahead.py          splits before a time series grows
    shard_claim.py    a shard id for the ring, without a coordinator
    ring.py           the partitions of a shard id
    partition_set.py  a set of the partitions of one version
    seals.py          checksums of a version's files
    identity.py       the identity of a version
    orders.py         pinned versions
    statement.py      a node's statements about datasets, and their bytes
    ownership.py      the partitions of a version that a node has
    holders.py        the statements of all members
    candidates.py     the nodes to ask for a partition, in order
"""
