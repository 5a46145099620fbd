"""The tree: the keys that members publish, in one branch for each member, and the readers' view of them.

Read in this order:

    limits.py       limits of paths and of one owner's keys
    branch.py       one owner's keys: versions, tombstones and their collection
    tree.py         all branches, the readers' view, and fresh changes as rumours
    watch.py        watchers of changes below a path
"""
