"""Files on disk: immutable sorted files and their builder, and small checked documents.

Read in this order:

    checksum.py      CRC-32C
    compression.py   lz4, without the GIL
    sorted_file.py   the file, as its readers see it: `mapped_file.pyx`, `sorted_file.pyx`, `scan.pyx`
    sigbus.py        survives the signal for a mapped page that cannot be read
    label.py         reads a file's footer and metadata without mapping the file
    batch.py         many records on their way to a builder
    sorting.py       sorting, merging, writing: `record_sorter.pyx`, `runs.pyx`, `sorted_file_writer.pyx`
    builder.py       builds files from records in any order
    shared_build.py  divides a build among lanes
    document.py      small checked documents
    typed.py         JSON as dataclasses, checked
    slots.py         documents overwritten in place, for a disk without room
    directories.py   directories made and removed safely across crashes
    engine/          the log-structured store under the tables
"""
