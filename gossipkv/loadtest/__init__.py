"""Puts servers under load and checks every answer: closed loop, open loop at a given rate, latency histogram.

Read in this order:

    plan.py         what a load test does; plan_text.py: as people write it
    load.py         a load, and what came of it
    _generator.pyx  the connections, when each request goes out, what came back
    _dialect.pyx    what it asks and how it judges, in any protocol; _rpc.pyx: in ours
    _tally.pyx      what was counted
    run.py          a plan, from its beginning to its result
    result.py       all that was found, as one document; documents.py: read back from a file
    measures.py     what a result is judged by; limits.py: what must not be; compare.py: two of them side by side
    judgement.py    what a run came to, in words; figures.py: numbers as people read them
    report.py       the page about it
    report_plots.py, drawings.py, plot.py   its plots: which there are, as they are drawn, their geometry
"""
