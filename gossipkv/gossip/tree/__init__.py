"""What members publish: one branch each, and what readers see of them.

Read in this order:

    paths.py, limits.py   what a key may be called, and how much may be published
    branch.py       one owner's keys: versions, tombstones, what is staged, and why nothing withdrawn comes back
    tree.py         all branches, and what readers see; index.py and watch.py are how
    hot.py          fresh changes as rumours; chunks.py: a branch in parts of a size
    refused.py      what did not fit
    tombstone_gc.py when tombstones may go
    claim.py        a shard id that nobody gave out
"""
