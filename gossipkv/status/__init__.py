"""What nodes tell of themselves and of each other, read and put into words: for terminals and for the page alike.

Read in this order:

    words.py        values, sizes and durations as people read them
    reading.py      answers of a node, of which any part may be missing
    versions.py     one version of a database, as a node tells it
    sentences.py    what an operator has to see at once
"""
