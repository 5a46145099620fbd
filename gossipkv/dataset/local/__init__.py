"""What a node has built and keeps on its disk.

Read in this order:

    store.py        the directories and documents, and what a crash leaves of them
    node_document.py   who the node is that lives there
    manifest.py     what a version was made from, and the files it consists of
    partition.py    what one sorted file says it is
    version.py      a built version, opened
"""
