"""Who is alive: SWIM with the Lifeguard extensions.

Read in this order:

    members.py      the table of members; beliefs.py: how what is said changes it
    lifeguard.py    how a node doubts itself before it accuses
    detector.py     probes; contact.py: whether anybody is heard at all
    rumours.py      news on its way, and on which packets
    self_identity.py  my own name, epoch and incarnation; namesakes.py: other nodes of that name
    joining.py      finding the others, also of another cluster id; reconnecting.py: when they were lost

`shared_state.py` is what they all stand on, with `timers.py` and `outbox.py`.
"""
