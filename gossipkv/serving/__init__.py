"""The byte path: requests in, answers out, and what a request may wait for.  It knows no node.

Read in this order:

    pump.py           the Trio shell of the serving loop: waits until it has work, and what takes time
    loop.py           the loop for Python, made from settings; _serving.pyx: the order of a round
    _transport.pyx    what it stands on; _sockets.pyx: epoll and sockets; _busy_poll.pyx: before it waits
    _connections.pyx  who is connected: lives, memory, time; without sockets; _backlog.pyx: whose turn it is
    _core.pyx         all of it as one object, and the door for Python
    _intake.pyx       what has arrived: message after message; _requests.pyx: what becomes of each
    _resp_answers.pyx   RESP beside MessagePack-RPC: the idea, and answers in order; _resp_intake.pyx and
                      _resp_commands.pyx: what clients of Redis ask; resp.py, resp_scan.py: what of that Python answers
    _handoff.pyx      what Python answers, and how its answers go back
    _published.pyx    what the loop answers by itself; published.py: what is served at this moment
    _batches.pyx      many keys in one request; _scans.pyx: scans, slice by slice
    _reasons.pyx      what a request may wait for: the table, a line and a file for each reason
    _relays.pyx       requests that wait, and when each is due; _asking.pyx: whom they are asked of, and when again
    _forwarded_get.pyx, _forwarded_batch.pyx   an owner, for a key or for many; _cold_reads.pyx: the disk;
                      _questions.pyx: what Python asks of other nodes
    _peer_answers.pyx   what other nodes answer; _forward_report.pyx: what is told when nobody does
    _peers.pyx        the other nodes; _routes.pyx: who holds what
    reads.py, scan.py   the reads about which something is to be said; read_counts.py: how many there were
    scan_elsewhere.py   pages of scans from several nodes; scan_merge.py: what they answer, made into one
    unanswered.py     what is said of a read that nobody has answered
"""
