"""Membership: SWIM with the Lifeguard extensions finds out which members are alive.

Read in this order:

    members.py        the table of members
    timers.py         timers on one heap
    outbox.py         effects on their way to the shell
    shared_state.py   the common ground of all parts
    self_identity.py  this node's name, epoch and incarnation
    namesakes.py      other nodes of this node's name
    lifeguard.py      how a node doubts itself before it accuses
    rumours.py        news in flight, and the packets that carry them
    beliefs.py        how statements change the table
    contact.py        silence, when no packet arrives at all
    detector.py       probes
    joining.py        finding members, also across cluster ids
    reconnecting.py   finding lost members again
"""
