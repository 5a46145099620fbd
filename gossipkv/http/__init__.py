"""HTTP in Sequins' form, in front of nodes: a client of the wire that knows nothing of a node's internals.

    answers.py      requests, answers, and the interface for asking a node (read in this order)
    exchange.py     one connection: from bytes to requests, from answers to bytes; target.py: request targets
    reads.py        reads of one key; batches.py and scans.py: of many; read_options.py: their options
    conditions.py, ranges.py, media.py, json_lines.py    conditional requests, partial values, forms of bodies
    health.py, metrics.py (with metric_table.py and samples.py)    /healthz and its like, /metrics, /debug/vars
    site.py         the handler of each path; permissions.py: the user's rights
    connection.py   one connection under Trio; gateway.py: all connections
    beside.py       the gateway process of a node (order.py: its orders; detached.py: its connections; gateway_child.py)
    alone.py        the gateway without a node

`page/` is the status page.
"""
