"""The byte path: requests in, answers out, and the reasons for which a request waits. This package knows no node.

Read in this order:

    pump.py           the Trio shell of a serving loop; pumps.py: all loops of a node
    loop.py           the loop made from settings; serving.pyx: the order of a round
    transport.pyx     the interface of transports; sockets.pyx: epoll and sockets; busy_poll.pyx: polling before a sleep
    connections.pyx   connections: states, memory, time-outs; backlog.pyx: requests for Python, in turns
    core.pyx          the core as one object, and its methods for Python
    intake.pyx        received bytes as messages; requests.pyx: ways to serve each message
    resp_answers.pyx, resp_intake.pyx, resp_commands.pyx   RESP; resp.py, resp_scan.py: the part in Python
    handoff.pyx       requests handed to Python, and the answers
    published.pyx     reads answered by the loop; published.py: the data served at this moment
    batches.pyx       many keys in one request; scans.pyx: scans in slices
    reasons.pyx       the reasons to wait: the table, with a line and a module for each
    relays.pyx        waiting requests and their deadlines; asking.pyx: requests to owners, in rounds
    forwarded_get.pyx, forwarded_batch.pyx, cold_reads.pyx, questions.pyx   relays: owners, the disk, Python's requests
    peer_answers.pyx  answers of other nodes; forward_report.pyx: reports on reads without an answer
    peers.pyx         connections to other nodes; routes.pyx: the holders of partitions
    reads.py, scan.py, read_counts.py   reads that need Python: errors, options, pages; their counts
    scan_elsewhere.py, unanswered.py    scan pages from several nodes; errors of reads without an answer
"""
