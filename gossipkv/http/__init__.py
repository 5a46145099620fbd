"""HTTP in Sequins' form, in front of nodes: a client of the wire that knows nothing of what a node is made of.

Read in this order:

    answers.py      a request, an answer, whom answers ask
    exchange.py     one connection: bytes to requests, answers to bytes
    target.py       what a request target names
    reads.py        one key; then batches.py and scans.py for many
    read_options.py what a read may say besides its key
    conditions.py, ranges.py    ETag and its like, parts of a value, times
    media.py, json_lines.py    the forms of bodies
    health.py       how a node is: /healthz, /livez, /readyz
    metric_table.py   every metric, and where it is found
    samples.py      from one `info` to samples of them
    metrics.py      /metrics and /debug/vars
    site.py         which path is answered by whom; permissions.py: and for whom
    connection.py   one connection under Trio; gateway.py: all of them
    order.py, beside.py   beside a node: what it tells, and who hears it; gateway_child.py: the process
    detached.py     where connections come from beside a node
    alone.py        without a node
    page/           the page that people look at
"""
