"""What a node has built and keeps on its disk.

Read in this order:

    store.py        the versions on the disk, and what a crash leaves of them; which functions strays have refuted
    active.py       which version clients get, and who held it
    manifest.py     what a version was made from, and the files it consists of
    partition.py    what one sorted file says it is
    scrubbed.py     when a version was last read back
    version.py      a built version, opened
"""
