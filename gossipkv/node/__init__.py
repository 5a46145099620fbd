"""One process: its data directory, its place in the cluster, the methods in Python, and how it starts and stops.

Read in this order:

    wiring.py       the parts, wired; start, signals, end
    directory.py    the data directory and its one owner; identity.py: who the node is that lives there
    forgotten.py    a store of tables that was set aside; restoring.py: a backup put back
    binding.py      where it listens, and what address it tells others
    gossip.py       the cluster, as a node has it; publications.py: what the node publishes, and may not
    peers/          connections to the other nodes, and what is asked and told on them
    access.py       who is asked by, and whether that one may; users_file.py: the users, whenever they change
    methods.py      what the serving loop hands to Python
    info.py         what a node tells of itself; readiness.py: whether clients should be sent to it
    gateway.py      the child process that answers HTTP; detached.py: connections on their way to it

What it wires: the serving loop (`serving`), the datasets (`dataset`), the tables (`table`), gossip and registers.
"""
