"""METADATA in one process: nodes that decide on tables, under Trio's simulated clock.

Registers alone are simulated on the heap (`testing.register`); here run `register.metadata` and the shells below it as
in production, each node over a simulated store, with a simulated network between them.  A run follows from its seed.

Read in this order:

    chance.py       what happens by chance
    store.py        a disk, and the store of one life of a node upon it
    network.py      questions and answers between nodes: late, lost, cut
    node.py         the lives of a node, and what a node does beside deciding
    witness.py      what was committed, by what is on all disks, and whether it may be
    model.py        a map as a dictionary: each transaction is judged again
    clients.py      what is wanted of the nodes, and whether what was told of it is so
    faults.py       what strikes
    world.py        a run: faults, healing, and what must be so soon after it
    __main__.py     one run by its seed
"""
