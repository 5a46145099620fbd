"""The byte path: requests in, answers out, and the reasons for which a request waits. This package knows no node.

Read in this order:

    loop.py            the loop made from settings
    pump.py            the Trio shell of a serving loop
    pumps.py           all loops of a node
    published.py       the data served at this moment
    read_counts.py     counts of reads in Python
    scan.py            scans: bounds, cursors, and a whole page at once
    reads.py           reads that the loop hands off: errors, options
    unanswered.py      errors of reads that no other node has answered
    scan_elsewhere.py  scan pages from several nodes
    resp_words.py      values, lines and errors of RESP
    resp_scan.py       SCAN of RESP
    resp_expiry.py     commands of RESP about the expiry of records
    resp.py            commands of RESP that the loop hands off

The loop itself, in C, is in `src_ext/gossipkv/serving`.
"""
