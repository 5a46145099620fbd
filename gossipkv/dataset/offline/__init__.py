"""Versions made beside the data: for tasks of Spark, Dask or any pool of processes.

Read in this order:

    writer.py       writes one partition
    finish.py       checks that all files are there and agree, and declares the version complete
    destinations.py the directory or URL (through fsspec) that the files go to
"""
