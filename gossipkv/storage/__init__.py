"""Files on disk: immutable sorted files and their builder, and small checked documents.

Read in this order:

    sorted_file.py    the file, as its readers see it
    format.pxd        the layout of its bytes; records.pyx: one record
    mapped_file.pyx, sorted_file.pyx, scan.pyx   pages checked when first touched; lookups; scans
    sigbus.py         survives the signal for a mapped page that cannot be read
    label.py          reads a file's footer and metadata without mapping the file
    batch.py          many records on their way to a builder
    builder.py        builds files from records in any order; shared_build.py: divides the work among lanes
    record_sorter.pyx, runs.pyx, sorted_file_writer.pyx   sort in memory, merge from disk, write
    sorting.py        re-exports these three for `engine`, which merges differently
    compression.py, checksum.py   lz4 and CRC-32C
    document.py       small checked documents
    slots.py          documents overwritten in place, for a disk without room
    directories.py    directories made and removed safely across crashes
"""
