"""Bytes on disk: immutable sorted files and their builder, and the small checked documents beside them.

Read in this order:

    sorted_file.py  the file, as its readers see it
    format.pxd     its bytes; records.pyx: one record
    mapped_file.pyx, sorted_file.pyx, scan.pyx   checked when first touched; looked up in; walked through
    sigbus.py       what becomes of a file that cannot be read any more in its map
    label.py        what a file says about itself, read from afar
    batch.py        many records on their way to a builder
    builder.py      from records in any order to files; shared_build.py: which lane writes what
    record_sorter.pyx, runs.pyx, sorted_file_writer.pyx   sorted in memory, merged from the disk, written
    sorting.py      the door to those three, for those who merge otherwise: engine/
    compression.py, checksum.py   lz4 and CRC-32C
    document.py     the small checked documents
    slots.py        such a document overwritten in place, for a disk without room
    directories.py  made and removed so that a crash leaves nothing half there
"""
