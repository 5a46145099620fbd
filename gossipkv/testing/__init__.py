"""The simulated world: what tests pass where production passes the real one.

Read in this order:

    scheduler.py    virtual time; streams.py: randomness by subject
    world.py        machines on a network, all of it from one number
    machine.py      a disk, clocks, an address, and a process that runs a core
    clocks.py, disk.py   what a machine has
    network.py      datagrams between machines; calls.py: requests over a connection
    simulated_files.py   a disk that loses power; faulty_files.py: operations that fail
    members.py      gossip's cores on machines; workload.py: what they publish; keys.py: sealed
    history.py      what they really did; checkers.py: whether what is shown agrees
    faults.py       what goes wrong in a run; strikes.py: each fault
    swarm.py        one run from one seed; shrink.py: a failing one with fewer faults
    transitions.py  which transitions of membership were taken
    nodes/          the second simulation: whole nodes
"""
