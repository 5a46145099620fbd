"""HTTP in Sequins' form, in front of nodes: a client of the wire that knows nothing of what a node is made of.

Read in this order:

    answers.py      a request, an answer, whom answers ask
    health.py       how a node is: /healthz, /livez, /readyz
    metric_table.py   every metric, and where it is found
    samples.py      from one `info` to samples of them
    metrics.py      /metrics and /debug/vars
"""
