"""The simulated world: what tests pass where production passes the real one.

Two simulations.  The first runs protocol cores on a heap of events, members by the hundred.  Read in this order:

    scheduler.py    virtual time; streams.py: randomness by subject; clocks.py: what machines read of time
    network.py      datagrams between machines, and what may happen to them; calls.py: requests over a connection
    program.py      what a machine runs
    machine.py      a disk, an address, and a process; disk.py: what it keeps
    world.py        all of it, from one number
    members.py      members of gossip on machines; workload.py: what they publish; keys.py: what they seal with
    faults.py       what strikes them, when and whom
    history.py      what they really did and said
    checkers.py     whether what they show can be; transitions.py: which of the automaton's arrows were taken
    swarm.py        one run of drawn faults: first safety, then liveness; shrink.py: the same with fewer faults

In `datasets/` the same machines share the partitions of a database: the core of a dataset beside that of gossip.

The second runs whole nodes, and is in `nodes/`.  Both, and the tests of single parts, have the same files:

    simulated_files.py  a disk in memory that forgets what was not synced: its operations
    simulated_tree.py   what is on it, as it is seen and as it durably is; sparse_bytes.py: what is in a file
    power_loss.py       what may be left when the power comes back: one state, drawn, or every one
    faulty_files.py     files that fail, or crash, at a chosen operation
"""
