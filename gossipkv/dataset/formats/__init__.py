"""The file formats that a source may hold: each module turns the bytes of one file into batches of records.

Read in this order:

    reading.py      what every format is given, and how every format refuses; excerpt.py: what a refusal shows
    detect.py       which format a file has
    codecs.py       Hadoop's codecs, bounded
    text.py         the text of a file, compressed or not; lines.py: chunks of it in, batches out
    tab_separated.py, json_lines.py   the formats of lines
    sequence_file.py   Hadoop's own
    parquet.py      columns; parquet_pages.py: how large their pages are
    sorted_files.py   our own files
"""
