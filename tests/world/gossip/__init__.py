"""Members of gossip on simulated machines: what they run and publish, what really happened, and whether they show it.

Read in this order:

    program.py      the core that a machine runs; calls.py: its requests over a connection
    rig.py          has its effects performed
    members.py      members on machines; workload.py: what they publish; keys.py: what they seal with
    history.py      what they really did and said
    checkers.py     whether what they show can be
    swarm.py        one run of drawn faults: first safety, then liveness
"""
