"""HTTP in Sequins' form, in front of nodes: a client of the wire that knows nothing of a node's internals.

Read in this order:

    answers.py        requests, answers, and the interface for asking a node
    target.py         request targets: a path, a database, a key, options
    exchange.py       one connection: from bytes to requests, from answers to bytes
    media.py          the forms of bodies given and wanted
    json_lines.py     keys and values in JSON
    ranges.py         partial values
    conditions.py     conditional requests
    read_options.py   options of reads and writes
    reads.py          reads of one key
    batches.py        reads of many keys
    scans.py          scans
    writes.py         writes to tables
    changes.py        change feeds as server-sent events
    health.py         /healthz, /livez, /readyz
    metric_table.py   all metrics: name, kind, help, and source in `info`
    samples.py        each metric of one `info`
    metrics.py        /metrics and /debug/vars
    permissions.py    the user's rights; the host of a request
    page/             the status page
    site.py           the handler of each path
    connection.py     one connection under Trio
    gateway.py        all connections
    order.py          the messages of a node to its gateway
    detached.py       connections passed from the node to its gateway
    beside.py         the gateway of a node
    gateway_child.py  the process of that gateway
    alone.py          the gateway without a node
"""
