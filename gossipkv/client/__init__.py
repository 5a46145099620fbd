"""A sans-io session with a node, and the shells that move its bytes.

Read in this order:

    requests.pyx   one request and its outcome; the deadlines of many
    session.pyx    requests to bytes, bytes to answers
    reads.py        the contents of read requests, and the shapes of their answers
    tables.py       writes, and the further options of table reads
    parts.py, pages.py   a `get_many` or `put_many` of any size, and a scan, as several requests
    route.py, backoff.py   the next address to try, and the pause after a failure
    patience.py     pauses while a node still builds the data of a read
    credentials.py  token and certificates; tls.py: TLS of one connection, without any I/O
    blocking.py     the client for plain threads
    dialler.py      its one connection: link.py, and pipeline.py for many requests at once
    dispatcher.py   distribution of many tasks' requests over connections, and their outcome
    trio_client.py  the client under Trio; trio_scan.py, trio_table.py: its reads and writes;
                    trio_link.py: one of its connections
    forks.py        lets a client notice that it is in a forked child
"""
