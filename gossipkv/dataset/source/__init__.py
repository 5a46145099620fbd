"""Sources of datasets.

Read in this order:

    files.py                the file operations of a source, and the description of a file there
    listing.py              databases, versions and files below a root, listed with suspicion
    declared_partitions.py  a job's declaration about the files that it wrote
    hadoop_checksums.py     Hadoop's checksum files
    reader.py               the bytes of one listed file
    small_objects.py        small objects of a store, read ahead
    object_stores.py        S3, Google's and Azure's stores, in few requests
    remote.py               stores that fsspec opens
    look_threads.py         a limited number of threads that look at sources
"""
