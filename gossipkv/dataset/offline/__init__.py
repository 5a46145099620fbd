"""Versions made beside the data, for tasks of Spark, Dask or any pool of processes, and from data frames; publication.

Read in this order:

    writer.py       writes one partition
    finish.py       checks that all files are there and agree, and declares the version complete
    frames.py       writes a version from a data frame
    preview.py      what a node would make of files
    publishing.py   puts a finished version below a source root
    destinations.py the directory or URL (through fsspec) that the files go to
"""
