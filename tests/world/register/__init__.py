"""Registers on simulated machines, and whether what their clients were told can be.

What decides is what runs in a node: acceptors, proposers and forces.  Simulated are disks, connections, and what gossip
would tell of others.

Read in this order:

    linearizable.py     whether a history of one register has an order
    chain.py            whether what one register committed is one chain, and what was told is on it
    log.py              what stands in the registers here: the changes that made it
    history.py          what was asked for, told, and kept
    checkers.py         whether that can be
    rig.py              what runs on a machine; cluster.py: what machines have in common
    workload.py         clients, and operators
    swarm.py            one run of drawn faults: first safety, then liveness
"""
