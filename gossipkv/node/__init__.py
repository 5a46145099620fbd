"""One process: its data directory, its place in the cluster, the methods in Python, and how it starts and stops.

Read in this order:

    identity.py         the node's record in its data directory
    directory.py        the data directory and its one owner
    forgotten.py        a store of tables that was set aside
    binding.py          the sockets to listen on, and the address that others are told
    certificate.py      the node's certificate
    users_file.py       the file of the users, read again when it changes
    access.py           users and their rights
    audit.py            the log of operations, with their callers and results
    publications.py     the keys that the node publishes in the tree
    gossip.py           the node's part in gossip
    peers/              connections to the other nodes, and the questions asked on them
    sharing.py          the datasets' part in the cluster: statements of members, and questions to them
    names.py            a name stands for a dataset or for a table
    readiness.py        whether clients should be sent to this node
    info.py             the method `info`
    verdicts.py         reports of this node, and the verdict over all reports
    report_methods.py   the methods by which the node reports
    backups.py          binds the methods about backups
    data_methods.py     the methods that read records, and that change datasets and tables
    cluster_methods.py  the methods about members, and between them
    methods.py          the requests that the serving loop hands to Python
    detached.py         HTTP connections on their way to the gateway
    gateway.py          the child process that answers HTTP
    wiring.py           the parts, wired; start, signals, end

The node wires the serving loop (`serving`), the datasets (`dataset`), the tables (`table`), gossip and registers.
"""
