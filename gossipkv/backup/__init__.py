"""Backups of the cluster's tables: to a directory or a URL, and back into a running cluster.

Read in this order:

    archive.py     the files of backups at a destination: manifests, sorted files, which backups need which files
    places.py      the places that a client may name
    threads.py     worker threads for places that may never answer
    cluster.py     the cluster as backups see it
    partition.py   copies one partition from one replica into a sorted file
    create.py      a backup of all tables, driven by the asked node
    restore.py     loads tables of a backup into hidden tables, which then get their names
    jobs.py        runs backups and restores apart from the requests that ask for them
    methods.py     the methods of the wire
"""
