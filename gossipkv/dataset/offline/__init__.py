"""Versions made where the data is: for tasks of Spark, Dask or any pool of processes.

Read in this order:

    writer.py       one partition
    finish.py       all are there and agree: the version is declared whole
    destinations.py where the files go: a directory, or through fsspec
"""
