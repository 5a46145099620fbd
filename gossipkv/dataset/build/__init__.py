"""Builds: from the files of a source to sorted files.

Read in this order:

    job.py          the description of one build
    trouble.py      the reason why a version could not be built
    memory.py       the memory that a build may take, divided among its lanes
    disk_space.py   the disk space that builds need and will still take
    recognition.py  the format of the files, and the partition function that made them
    reading_in.py   how records get into a builder
    steps.py        the steps of a build
    lanes.py        the same steps on several cores, in threads
    adopt.py        taking over a version that consists of our own sorted files
    build_child.py  the process that builds beside a node
    parent.py       the node's side of that process
"""
