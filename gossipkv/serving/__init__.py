"""The byte path: requests in, answers out, and what a request may wait for.  It knows no node.

Read in this order:

    pump.py           the Trio shell of the serving loop: waits until it has work, and what takes time
    loop.py           the loop for Python, made from settings; serving.pyx: the order of a round
    transport.pyx    what it stands on; sockets.pyx: epoll and sockets; busy_poll.pyx: before it waits
    connections.pyx  who is connected: lives, memory, time; without sockets; backlog.pyx: whose turn it is
    core.pyx         all of it as one object, and the door for Python
    intake.pyx       what has arrived: message after message; requests.pyx: what becomes of each
    resp_answers.pyx   RESP beside MessagePack-RPC: the idea, and answers in order; resp_intake.pyx and
                      resp_commands.pyx: what clients of Redis ask; resp.py, resp_scan.py: what of that Python answers
    handoff.pyx      what Python answers, and how its answers go back
    published.pyx    what the loop answers by itself; published.py: what is served at this moment
    batches.pyx      many keys in one request; scans.pyx: scans, slice by slice
    reasons.pyx      what a request may wait for: the table, a line and a file for each reason
    relays.pyx       requests that wait, and when each is due; asking.pyx: whom they are asked of, and when again
    forwarded_get.pyx, forwarded_batch.pyx   an owner, for a key or for many; cold_reads.pyx: the disk;
                      questions.pyx: what Python asks of other nodes
    peer_answers.pyx   what other nodes answer; forward_report.pyx: what is told when nobody does
    peers.pyx        the other nodes; routes.pyx: who holds what
    reads.py, scan.py   the reads about which something is to be said; read_counts.py: how many there were
    scan_elsewhere.py   pages of scans from several nodes
    unanswered.py     what is said of a read that nobody has answered
"""
