"""Reports of nodes, read and put into words, for terminals and for the page alike.

Read in this order:

    words.py        values, sizes and durations for people
    codec.py        records from answers of which any part may be missing, and back
    reports.py      the records of all answers about nodes, datasets and tables
    sentences.py    sentences about a node and a version
    verdict.py      the overall health with reasons, and its encoding
    judging/        the judgement
"""
