"""What members publish: one branch each, and what readers see of them.

Read in this order:

    branch.py       one owner's keys: versions, tombstones, what is staged, and why nothing withdrawn comes back
    tree.py         all branches, and what readers see; index.py and watch.py are how
    hot.py          fresh changes as rumours; chunks.py: a branch in parts of a size
    tombstone_gc.py when tombstones may go
"""
