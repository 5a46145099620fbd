"""Which nodes hold a partition?  Pure: what is told the ids, the time, and what others have published.

Read in this order:

    shard_claim.py  a place in the ring that nobody gave out: the shard id
    identity.py     what makes two copies of a version the same version

The ring next: which shard ids hold a partition, and in what order they are asked.
"""
