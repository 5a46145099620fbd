"""The simulated world: what tests pass where production passes the real one.

Two simulations.  The first runs protocol cores on a heap of events, members by the hundred.  Read in this order:

    scheduler.py    virtual time; streams.py: randomness by subject; clocks.py: what machines read of time
    network.py      datagrams between machines, and what may happen to them; connections.py: messages in order
    rig.py          what runs on a machine: it performs what its cores ask for
    machine.py      a disk, an address, and a process; disk.py: the documents that it keeps
    store_disk.py   disks whose syncs take time: the store of tables, or an ideal one
    world.py        all of it, from one number
    faults.py       what strikes them, when and whom
    promises.py     what checkers find
    swarm.py        one run of drawn faults: first safety, then liveness; shrink.py: the same with fewer faults
    gossip/         members of gossip on machines: their history, checkers and swarm
    transitions.py  which arrows of membership's automaton were taken

In `datasets/` the same machines share the partitions of a database: the core of a dataset beside that of gossip; in
`register/` they hold registers.  `metadata/` runs what decides on tables, under Trio in virtual time.

The second runs whole nodes, and is in `nodes/`.  Both, and the tests of single parts, have the same files:

    simulated_files.py  a disk in memory that forgets what was not synced: its operations
    simulated_tree.py   what is on it, as it is seen and as it durably is; sparse_bytes.py: what is in a file
    power_loss.py       what may be left when the power comes back: one state, drawn, or every one
    cold_pages.py       pages of sorted files that come and go, as on a machine of little memory
    faulty_files.py     files that fail, or crash, at a chosen operation
    logs.py             what the program says of itself, heard by a test
"""
