"""A database in the cluster: what others have said, what this node may do, and what it says itself.

Read in this order:

    members.py        who is there, and in which state; for all databases of a node
    convergence.py    the list of ids as it last was when still; for all databases too
    own_copy.py       what is here of a version
    others.py         what others have said, in this life and before; survey.py: what that comes to now
    contents.py       which of several contents that go by one name
    gate.py           whether a version has owners enough; question.py: what they are asked; gates.py: all of them
    fixed_seals.py    on which files clients have an identity, and whose are the same
    shares.py         which partitions are to be here; reassignment.py: and which nobody else builds
    retiring.py       when an old version may go
    refutations.py    which functions no build may rely on
    publication.py    what is said, and when; routes.py: whom the serving loop may ask
    view.py           all of it behind one object, for whoever only asks; spread.py: what `status` tells of that
    core.py           the same, told what has changed; effects.py: what it asks for; terms.py: its settings

None of that knows a clock, chance, Trio or gossip: a node tells it everything, and does what it asks.

    part.py           the part of a database that tells the core what is here, and does what it asks for
"""
