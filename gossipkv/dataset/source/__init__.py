"""Where datasets come from.

Read in this order:

    files.py        what a source is read with, and what is known of a file there
    listing.py      databases, versions and files below a root, listed with suspicion
    declared_partitions.py   what a job says about the files that it wrote
    reader.py       the bytes of one listed file; hadoop_checksums.py: the sums beside it
    remote.py       stores that fsspec opens
    look_threads.py threads that look, of which there are only so many
"""
