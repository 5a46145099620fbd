"""Processes: the children of a node and of the launcher, and what each process says of itself.

Read in this order:

    leash.py        a process on it dies with whoever started it; work in a copy of a process that has imported already
    program.py      how a program of ours is started, speaks over pipes, and how it ended
    passing.py      descriptors that one passes to another
    child.py        a program of ours that a node runs: started, heard, ended
    pace.py         how fast it may read
    niceness.py     others come first
    usage.py        what this process takes of the machine, and what another does, seen from outside
    logs.py         what it says: lines with fields on standard error
    streams.py      standard output and error that never wait for their reader
"""
