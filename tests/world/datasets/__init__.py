"""Datasets on simulated machines: the core of a database beside a member's, with sources, builds and readers.

What decides is what runs in a node: gossip's core, the core of a database in the cluster, and `decide` over its lives.
Simulated are what lies at the source, how long a file takes to read, the disk, and the way between two machines.

Read in this order:

    contents.py     what a version consists of, and what each machine sees at its source
    exchange.py     a request of one machine to another
    disk.py         what a machine keeps of its datasets
    node.py         one process: told by gossip, obeying its core; building.py: its builds
    answer.py       what a client got
    checkers.py     whether that can be
    readers.py      clients, and reads that are forwarded
    cluster.py      all of it, on machines of a world
    swarm.py        one run of drawn faults: first safety, then liveness
"""
