"""Membership: SWIM with the Lifeguard extensions finds out which members are alive.

Read in this order:

    members.py        the table of members; beliefs.py: how statements change the table
    lifeguard.py      how a node doubts itself before it accuses
    detector.py       probes; contact.py: silence, when no packet arrives at all
    rumours.py        news in flight, and the packets that carry them
    self_identity.py  this node's name, epoch and incarnation; namesakes.py: other nodes of that name
    joining.py        finding members, also across cluster ids; reconnecting.py: finding lost ones again
    shared_state.py   the common ground of all parts, with `timers.py` and `outbox.py`
"""
