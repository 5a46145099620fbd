"""The scrub: all that is served is checked again within `scrub_period`, since a disk and its cache both rot in silence.

A page in the system's cache and its place on the disk can each be damaged while the other is whole.  So there are two
halves, and what either finds is damage:

* What was checked when it was first read is forgotten, a slice of every file at a time: whoever reads it checks it
  again, in the cache, where it serves from.
* A child process of low priority reads every file back from the disk, slowly, past the cache.

Read in this order:

    read_back.py    the program that compares a version with its checksums, as it lies on the disk
    parent.py       the node's side of it
    scrub.py        which version is read back next, when, and how fast; both halves, for as long as the node runs

Rejected: one thread that touches all mapped pages (it would pull all of a disk through the cache that reads need, and
see the cache only); a checksum at every read (twice the price of a get); trust in the disk's own checksums (they are
16 bits where there are any, and say nothing of the way to memory).
"""
