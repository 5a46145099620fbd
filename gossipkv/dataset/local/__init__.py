"""Built versions on the disk of a node.

Read in this order:

    store.py        the versions on the disk, their leftovers after a crash, and the refuted functions
    active.py       the version that clients get, and its owners
    manifest.py     the source of a version, and its files
    partition.py    the claim of one sorted file about its partition
    scrubbed.py     when a version was last read back
    version.py      a built version, opened
"""
