"""Delta and Iceberg tables as sources: a snapshot of the table is a version, and its data files are read as Parquet.

Read in this order:

    table_source.py  a source whose versions are a table's snapshots
    look.py          the process that reads a table's log and metadata
    delta.py         the log of a Delta table
    iceberg.py       the metadata of an Iceberg table, through pyiceberg
    deleted_rows.py  the positions of a data file's deleted rows
"""
