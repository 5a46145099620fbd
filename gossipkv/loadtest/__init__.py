"""Puts servers under load and checks every answer: closed loop, open loop at given rates, exact histograms.

Read in this order:

    plan.py         what is asked, of whom, how fast; plan_text.py: the same as text
    result.py       what comes of it
    run.py          a plan carried out, from the beginning to its result
    truth.py        the right values, read as a node reads its source; the process that reads one version
    fleet.py        the processes that make the load; load_child.py: one of them
    worker.py       how one is started and ended
    late_truth.py   versions that come while it runs
    gathering.py    what they say, put together; counts that add up exactly
    watch.py        the cluster beside it; server_cpu.py: what the servers take
    generator.pyx  the connections, when each request goes out, what came back; link.pxd: one connection
    schedule.pyx   when requests are due
    keys.pyx       which keys are asked for; records.pyx: they and their values
    dialect.pyx    what it asks and how it judges, in any protocol; rpc.pyx, http.pyx, redis.pyx: in three
    ledger.pyx     what was counted: a tally by stage and target, and by version
    documents.py    a result read back from a file
    measures.py     what a result is judged by; limits.py: what must not be; compare.py: two of them side by side
    judgement.py    what a run came to, in words; figures.py: numbers as people read them
    report.py       the page about it; report_plots.py, drawings.py, plot.py: its plots
"""
