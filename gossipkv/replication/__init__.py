"""Replication: the replicas of a partition become equal, by Dynamo-style vector clocks (the causal store of the seeds).

Read in this order:

    replica/        one replica: its clock, records and log entries
    ports.py        the store and the other nodes, as one Protocol
    store.py        the store, as a Protocol for modules that load none
    stream/         log entries on their way between two nodes
    snapshot/       bulk loads for replicas that the log does not reach
    replica_set.py  all replicas of a node: the core, without I/O
    maintenance/    garbage collection, digests, range cleanup and splits
    deadlines.py    requests that wait, in one heap of deadlines
    shell.py        all of it under Trio
"""
