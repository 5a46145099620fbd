"""File formats of a source: each module turns the bytes of one file into batches of records.

Read in this order:

    reading.py        the inputs and the error common to all formats
    excerpt.py        excerpts of a source's bytes in errors
    codecs.py         Hadoop's codecs, bounded
    text.py           the text of a file, compressed or not
    lines.py          from chunks of text to batches of lines
    tab_separated.py  one record a line, split at the first TAB
    tsv_signs.py      signs in such lines that their writer meant quotes, a header, an index or nulls
    json_lines.py     one JSON object a line
    sequence_file.py  Hadoop's SequenceFiles
    columns/          formats with columns, through pyarrow
    sorted_files.py   our own sorted files
    detect.py         detection of a file's format
"""
