"""Which nodes hold a partition?  Pure: what is told the ids, the time, and what others have published.

Read in this order:

    partition.py      a table's partition: its assignments, how far each is, what no partition breaks
    spread.py         which nodes are to hold which of a table's partitions
    measures.py       how much is in a partition and asked of it
    lately.py         what has become of a range table's map in the last minutes
    ranges.py         what is moved of a range table, and what is divided
    moves.py          what is begun next, so that they do
    shard_claim.py    a place in the ring that nobody gave out: the shard id
    identity.py       what makes two copies of a version the same version
    partition_set.py  some of a version's partitions
    seals.py          what tells two files of one partition apart
    ring.py           which of them fall to a shard id: who builds what
    statement.py      what a node says that it holds and builds, and its bytes
    orders.py         on which version operators have pinned a database
    holders.py        the statements of all members: who holds what
    candidates.py     whom to ask, in which order
"""
