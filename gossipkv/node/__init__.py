"""One process: its data directory, its place in the cluster, the methods in Python, and how it starts and stops.

Read in this order:

    wiring.py       the parts, wired; start, signals, end
    directory.py    the data directory and its one owner; identity.py: the node's record in that directory
    forgotten.py    a store of tables that was set aside; restoring.py: a backup put back
    binding.py      the sockets to listen on, and the address that others are told
    gossip.py       the node's part in gossip; publications.py: the keys that the node publishes in the tree
    peers/          connections to the other nodes, and the questions asked on them
    access.py       users and their rights; users_file.py: the file of the users, read again when it changes
    methods.py      the requests that the serving loop hands to Python
    info.py         the method `info`; readiness.py: whether clients should be sent to this node
    gateway.py      the child process that answers HTTP; detached.py: connections on their way to that child

The node wires the serving loop (`serving`), the datasets (`dataset`), the tables (`table`), gossip and registers.
"""
