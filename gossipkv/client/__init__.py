"""A sans-io session with a node, and the shells that move its bytes.

Read in this order:

    requests.pyx         one request and its outcome; the deadlines of many
    session.pyx          requests to bytes, bytes to answers
    reads.py             the contents of read requests, and the shapes of their answers
    tables.py            writes, and the further options of table reads
    parts.py             a `get_many`, `put_many` or `delete_many` of any size, in parts that fit into frames
    pages.py             a scan, page by page
    changes.py           a change feed, poll by poll
    range_deletion.py    the deletion of a range, page by page
    sessions.py          the state that a session has seen, so that no node answers with older data
    route.py             the addresses of a client, in the order in which they are tried
    backoff.py           pauses before an unreachable address is tried again
    patience.py          pauses while a node still builds the data of a read
    owners.py            the owner of a table's key, by the table's map
    credentials.py       token and certificates
    tls.py               TLS of one connection, without any I/O
    forks.py             lets a client notice that it is in a forked child
    asking.py            the services of a shell to the methods of clients, datasets and tables
    calls.py             the methods of a client, once for every shell
    dataset.py           the reads of a dataset
    table.py             the reads and writes of a table
    awaited.py           the methods as type checkers see them under Trio and asyncio
    plain.py             the same in plain threads
    dispatcher.py        distribution of many tasks' requests over connections, and their outcome
    link.py              the beginning of a connection, and its answers and end, without any I/O
    sockets.py           connecting, sending, and the settings of sockets
    channel.py           a dispatcher and its connections, moved by one thread
    channels.py          the channels of one client, shared by its threads
    blocking_shell.py    the client for plain threads, without its methods
    blocking.py          the client for plain threads
    task_shell.py        the parts that are the same under Trio and asyncio
    aio_link.py          one connection under asyncio
    aio_shell.py         the client under asyncio, without its methods
    aio.py               the client under asyncio
    trio_link.py         one connection under Trio
    trio_shell.py        the client under Trio, without its methods
    trio_client.py       the client under Trio
    scan.py              the records of a scan for `async for`
"""
