"""The life of a version on a node: two tables of states, one pure function that decides, and the shells that obey.

A version has a *copy* here, or none: its partitions are wanted, built, whole, or damaged.  And it has a life *towards
clients*, who get it or not.  Neither follows from the other: a node may answer from a version of which others hold all
partitions, and hold a whole copy of one that no client may have yet.  What one cannot know alone, it asks for
(`Verdicts`).

Read in this order:

    copy_states.py      what is here of a version
    version_states.py   what clients get of it; both lives together
    decisions.py        what to do next

and the shells that obey, for the versions of one database:

    copies.py           has copies opened, built, repaired, dropped
    version_build.py    has one built: room on the disk, the directory, a second look at the source, publication
    open_versions.py    has files closed after their last read, and opened anew when their map was lost
    switching.py        has another version answered to clients, durably
"""
