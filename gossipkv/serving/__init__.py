"""The byte path: requests in, answers out, and what a request may wait for.  It knows no node.

Read in this order:

    pump.py           the Trio shell of the serving loop: waits until it has work, and what takes time
    loop.py           the loop for Python, made from settings; _serving.pyx: the order of a round
    _transport.pyx    what it stands on; _sockets.pyx: epoll and sockets; _busy_poll.pyx: before it waits
    _connections.pyx  who is connected: lives, memory, time; without sockets; _backlog.pyx: whose turn it is
    _requests.pyx     what they ask: messages in, answers and hand-offs out
    _published.pyx    what the loop answers by itself; published.py: what is served at this moment
    _batches.pyx      many keys in one request; _scans.pyx: scans, slice by slice
    _forwarding.pyx   reads that others answer
    reads.py, scan.py   the reads about which something is to be said; read_counts.py: how many there were
    scan_elsewhere.py   pages of scans from several nodes; scan_merge.py: what they answer, made into one
    unanswered.py     what is said of a read that nobody has answered
"""
