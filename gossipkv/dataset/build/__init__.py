"""A build: from the files of a source to sorted files.

Read in this order:

    job.py          what is to be built
    recognition.py  what the files are, and which partition function made them
    reading_in.py   how records get into a builder
    steps.py        the steps of a build
    lanes.py        the same on several cores, in threads
    adopt.py        a version that consists of our own sorted files
    build_child.py  the process that builds beside a node; parent.py: the node's side; order.py: what that tells it
    memory.py, disk_space.py    what a build may take
"""
