"""What members publish: one branch each, and what readers see of them.

Read in this order:

    limits.py       what may be published: under which paths, and how much of one owner
    branch.py       one owner's keys: versions, tombstones, and why nothing withdrawn comes back
    tree.py         all branches, and what readers see; index.py and watch.py are how
    hot.py          fresh changes as rumours
    tombstone_gc.py when tombstones may go
"""
