"""The life cycle of a version on a node: two state tables, one pure decision function, and the shells that obey it.

A version has a *copy* here, or none: its partitions are wanted, built, whole, or damaged.  A version also has a state
*towards clients*.  Neither follows from the other, since other nodes hold partitions as well.  `VersionDecisions` gives
the answers that a single node cannot know.

    copy_states.py     states of the copy
    version_states.py  states towards clients; both state machines together
    decisions.py       the next step
    version_build.py   one build, from the source's listing to open files
    copies.py          opens, builds, repairs and drops copies
    open_versions.py   closes files after their last read, and reopens files that lost their map
    switching.py       makes another version active, durably
"""
