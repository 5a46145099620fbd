"""Formats with columns: each reader yields Arrow record batches, and one module makes keys and values of them.

Read in this order:

    arrow_file.py     a file in the form that pyarrow reads
    arrow_values.py   the texts of values, and their parts of rows
    arrow_rows.py     from record batches to records
    parquet_pages.py  the page sizes of a Parquet column chunk, before anything is decoded
    table_rows.py     the rows of a data file as a snapshot of its table has them
    parquet.py        Parquet
    arrow_ipc.py      Arrow files and streams, Feather
    orc.py            ORC
    csv.py            CSV, with a dialect
    avro.py           Avro's container files, through fastavro
"""
