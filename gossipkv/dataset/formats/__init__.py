"""File formats of a source: each module turns the bytes of one file into batches of records.

    reading.py      the inputs and the error common to all formats (read in this order); excerpt.py: bytes in errors
    detect.py       detection of a file's format
    codecs.py       Hadoop's codecs, bounded
    text.py         the text of a file, compressed or not; lines.py: from chunks of text to batches

Each other module reads one format: `tab_separated.py`, `json_lines.py`, `sequence_file.py` (Hadoop's), `parquet.py`
(with `parquet_pages.py` for page sizes) and `sorted_files.py` (our own).
"""
