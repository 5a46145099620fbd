"""A database in the cluster: the members' statements, the steps they permit this node, and its own statements.

    members.py, convergence.py    the members, and the ids in the ring; for all databases of a node
    own_copy.py, others.py        the local copy of a version; the statements of other members; survey.py: their sum
    contents.py, fixed_seals.py   the identity that clients get by a version's name, and its file checksums
    gate.py, question.py          enough owners for one identity, and the question they answer; gates.py: all gates
    shares.py, reassignment.py    the wanted partitions; partitions that no node has or builds
    retiring.py, refutations.py   the end of old versions; functions that no build may rely on
    publication.py, routes.py     when statements are published; the owners that the serving loop may ask
    view.py, core.py, part.py     the read-only view; the core without I/O; the shell that acts for the core

`spread.py` has the entries of `status`, `effects.py` the requests of the core, `terms.py` its settings.
"""
