"""Replication: makes the replicas of a partition equal, by vector clocks as in Dynamo.

Read in this order:

    replica/        one replica: its clock, records and log entries
    ports.py        the store and the other nodes, as one Protocol
    store.py        the part of a store that replication uses
    stream/         log entries on their way between two nodes
    snapshot/       bulk loads for replicas that the log does not reach
    own_writes.py   local writes: one batch for those that wait for the same sync
    replica_set.py  all replicas of a node: the core, without I/O
    maintenance/    garbage collection, digests, range cleanup and splits
    changes/        change feeds
    deadlines.py    parked requests, in one heap of deadlines
    shell.py        all of it under Trio
"""
