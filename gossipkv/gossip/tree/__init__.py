"""What members publish: one branch each, and what readers see of them.

Read in this order:

    limits.py       what may be published: under which paths, and how much of one owner
    branch.py       one owner's keys: versions, tombstones and when they may go, why nothing withdrawn comes back
    tree.py         all branches, what readers see of them, and fresh changes as rumours
    watch.py        who is told when keys below a path change
"""
