"""The life cycle of a version on a node: two state tables, one pure decision function, and the shells that obey it.

A version has a *copy* here, or none: its partitions are wanted, built, whole, or damaged.  It also has a state *towards
clients*. Neither follows from the other.  A node may answer from a version whose partitions other nodes hold.  It may
hold a whole copy of a version that no client may have yet.  `Verdicts` gives the answers that one node cannot know
alone.

    copy_states.py      states of the copy (read in this order)
    version_states.py   states towards clients; both state machines together
    decisions.py        the next step
    copies.py           opens, builds, repairs and drops copies
    version_build.py    one build: disk space, directory, second look at the source, publication
    open_versions.py    closes files after their last read, and reopens files that lost their map
    switching.py        makes another version active, durably
"""
