"""Background work on replicas that are complete and at rest.

Read in this order:

    tombstone_gc.py   garbage-collects tombstones that every replica has acknowledged
    expiry.py         says which expired records merges of the store may drop
    digests.py        compares replicas of equal clocks
    range_cleanup.py  deletes records that a replica left in a shared space
    split.py          divides a replica in place
"""
