"""Reports of nodes, read and put into words, for terminals and for the page alike.

Read in this order:

    words.py        values, sizes and durations for people
    reading.py      a node's answers, of which any part may be missing
    versions.py     one version of a database, from a node's report
    tables.py       tables, from a node's report
    sentences.py    sentences about a node and a version
    verdict.py      the overall health with reasons, and its encoding
    judging/        the judgement
"""
