"""A sans-io session with a node, and the shells that move its bytes.

Read in this order:

    requests.pyx   one request on its way, and what became of it; when those of many are due
    session.pyx    requests to bytes, bytes to answers
    reads.py        what reads send, and what their answers must look like
    tables.py       what writes send, and what reads of tables send besides
    parts.py, pages.py   a `get_many` or `put_many` of any size, and a scan, as several requests
    route.py, backoff.py   which address is next, and when one that failed is tried again
    patience.py     when what is still being built is asked for again
    credentials.py  what a client shows of itself; tls.py: TLS of one connection, without any I/O
    blocking.py     the client for plain threads
    dialler.py      the one connection that it holds: link.py, and pipeline.py for many requests at once
    dispatcher.py   which request of many tasks goes to which connection, and what becomes of it there
    trio_client.py  the client under Trio; trio_scan.py, trio_table.py: what it reads and writes;
                    trio_link.py: one connection of it
    forks.py        how a client knows that this is not the process that made it
"""
