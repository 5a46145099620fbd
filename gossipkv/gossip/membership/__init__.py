"""Who is alive: SWIM with the Lifeguard extensions.

Read in this order:

    states.py       the automaton: what becomes of a member when something is said about it
    members.py      the table of members; beliefs.py: how what is said changes it
    detector.py     probes; suspicion.py and awareness.py: Lifeguard
    rumours.py      news on its way; spreading.py: on which packets
    self_identity.py  my own name, epoch and incarnation
    joining.py      finding the others; meeting.py: when cluster ids differ

`shared_state.py` is what they all stand on, with `timers.py` and `outbox.py`.
"""
