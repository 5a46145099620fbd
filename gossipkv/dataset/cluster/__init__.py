"""A database in the cluster: the members' statements, the steps they permit this node, and its own statements.

Read in this order:

    terms.py         the settings of a database in the cluster
    effects.py       the requests of the core to the node around it
    members.py       the members as this node knows them, for all databases
    convergence.py   the ids that form the ring: those that have been stable long enough
    own_copy.py      this node's copy of a version, and the statement that it permits
    statements.py    the statements of the other members
    survey.py        the sum of all statements, made anew in each step
    contents.py      the identity that clients get by a version's name
    fixed_seals.py   the file checksums of that identity
    question.py      the direct question of a gate to an owner
    gate.py          enough owners for one identity
    gates.py         the gates of all versions
    shares.py        the partitions that should be on this node
    reassignment.py  partitions that no node has and none builds
    retiring.py      the conditions under which an old version may leave
    refutations.py   partition functions that no build may rely on
    publication.py   when this node's statements are published
    routes.py        the owners that the serving loop may ask
    view.py          the read-only view, for `status`, `decide` and the loop
    spread.py        the entries of `status`
    core.py          the core, without I/O
    part.py          the shell that acts for the core
"""
