"""Load tests that check every answer: closed loop, open loop at given rates, exact histograms.

Read in this order:

    plan.py          the plan of a load test
    plan_text.py     its text form
    result.py        the result: one document
    truth.py         the right keys and values
    late_truth.py    the truth of versions that appear during the run
    load_child.py    the program of a load process
    fleet.py         all load processes
    gathering.py     the sum of their reports
    watch.py         the cluster under load
    server_cpu.py    processor time of the servers
    run.py           a plan carried out, from the beginning to its result
    documents.py     results read back from files
    measures.py      the numbers of a result, by name
    limits.py        limits of a run
    compare.py       comparison of two results
    judgement.py     the verdict in words
    figures.py       formatted numbers
    plot.py          the geometry of plots
    drawings.py      the plots of a report
    report_plots.py  the choice of plots for a result
    templates/       the templates of the report
    report.py        the report: one HTML file

The extension: `generator.pyx` (`link.pxd`: one connection), `schedule.pyx`, `keys.pyx`, `records.pyx`, `ledger.pyx`
(counts), and `dialect.pyx` with `rpc.pyx`, `http.pyx` and `redis.pyx` (protocols).
"""
