"""Load tests that check every answer: closed loop, open loop at given rates, exact histograms.

    plan.py, plan_text.py   the plan and its text form; result.py: the result (read these first)
    run.py                  a plan carried out, from the beginning to its result
    truth.py, late_truth.py    the right values; versions that appear during the run
    fleet.py, load_child.py, worker.py    the load processes: all, one of them, its start and end
    gathering.py, watch.py, server_cpu.py    sums of their reports; the cluster meanwhile; its processor time
    documents.py, measures.py, limits.py, compare.py    reading results; numbers, limits, comparison of two results
    judgement.py, figures.py, report.py (and its plots)    the verdict in words, formatted numbers, the page

The extension: `generator.pyx` (`link.pxd`: one connection), `schedule.pyx`, `keys.pyx`, `records.pyx`, `ledger.pyx`
(counts), and `dialect.pyx` with `rpc.pyx`, `http.pyx` and `redis.pyx` (protocols).
"""
