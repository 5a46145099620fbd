"""What nodes tell of themselves and of each other, read and put into words: for terminals and for the page alike.

Read in this order:

    words.py        values, sizes and durations as people read them
    reading.py      answers of a node, of which any part may be missing
    versions.py     one version of a database, as a node tells it
    tables.py       tables, as a node tells them beside datasets
    sentences.py    how a node and a version stand
    verdict.py      whether all is well: what is said of it, and how that travels
    judging/        how it is judged
"""
