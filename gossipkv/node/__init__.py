"""One process: the serving loop, the methods it hands to Python, and how it starts and stops.

Read in this order:

    node.py         the parts, wired; start, signals, end
    directory.py    the data directory and its one owner; identity.py: who the node is that lives there
    binding.py      where it listens, and what address it tells others
    pump.py         the Trio shell of the serving loop
    _serving.pyx    the loop: epoll, accept, receive, send
    _connections.pyx  who is connected: lives, memory, time; without sockets
    _requests.pyx   what they ask: messages in, answers and hand-offs out
    _published.pyx  what the loop answers by itself; _scans.pyx: scans, slice by slice
    published.py    what is served at this moment
    methods.py      what is handed to Python; arguments.py: what clients sent, judged
    reads.py, scan.py   the reads about which something is to be said
    gossip.py       the cluster, as a node has it; publications.py: what the node publishes, and may not
    driven_loop.py  the loop over simulated streams
"""
