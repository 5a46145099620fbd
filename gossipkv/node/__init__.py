"""One process: the serving loop, the methods it hands to Python, and how it starts and stops.

Read in this order:

    node.py         the parts, wired; start, signals, end
    directory.py    the data directory and its one owner; identity.py: who the node is that lives there;
                    founding.py: whether it may found the catalogue of its cluster's tables
    tables.py       the store of the tables: whether it may be opened, and that it is; forgotten.py: one set aside;
                    stores.py: what a node needs of a store; restoring.py: a backup put back
    binding.py      where it listens, and what address it tells others
    hello.py        what two nodes say first on a connection between them
    peers.py        those connections: who is dialled, when again, and what is asked on them
    pump.py         the Trio shell of the serving loop
    _serving.pyx    the loop: the order of a round
    _transport.pyx  what it stands on; _sockets.pyx: epoll and sockets; _streams.pyx: a simulation's (streams.py)
    _connections.pyx  who is connected: lives, memory, time; without sockets
    _requests.pyx   what they ask: messages in, answers and hand-offs out
    _published.pyx  what the loop answers by itself; _scans.pyx: scans, slice by slice
    published.py    what is served at this moment
    methods.py      what is handed to Python; arguments.py: what clients sent, judged; waiting.py: what takes time
    deciding.py     this node's part in deciding on tables: from when, and with whom; hints.py: what nodes say of it
    table_methods.py    what clients and nodes ask about that; table_requests.py: of clients, read and judged;
                    late_table_methods.py: loaded when it is asked
    reads.py, scan.py   the reads about which something is to be said; read_counts.py: how many there were
    info.py         what a node tells of itself; readiness.py: whether clients should be sent to it
    scan_elsewhere.py   pages of scans from several nodes; scan_merge.py: what they answer, made into one
    unanswered.py   what is said of a read that nobody has answered
    sharing.py      how the databases take part in the cluster: what others say, and what is asked of them
    gateway.py      the child process that answers HTTP
    gossip.py       the cluster, as a node has it; publications.py: what the node publishes, and may not
"""
