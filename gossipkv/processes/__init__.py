"""Processes: children of a node and of the launcher, and a process's own reports.

Read in this order:

    leash.py        kills a process when its starter dies; runs work in a fork of a process that has imported already
    program.py      starts a program of ours, speaks over pipes, describes its end
    passing.py      passes descriptors to another process
    child.py        a program of ours that a node runs: started, read, ended
    worker.py       a child with pipes, for threads
    asked.py        a child that a thread asks, line by line
    orphans.py      reaps orphans as process 1 of a container
    pace.py         a rate limit
    niceness.py     low priority
    usage.py        resources used by this process, and by another one seen from outside
    logs.py         log lines with fields on standard error
    streams.py      standard output and error that never wait for their reader
    supervisor.py   messages to systemd
"""
