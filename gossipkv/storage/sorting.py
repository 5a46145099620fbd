"""The parts of the builder that sort, merge and write records, for `engine`, which merges differently.

A `RecordSorter` takes records in any order, more than fit in memory, and spills them to a `Scratch`. Its output is an
`OrderedSource`: one `Source` among those of a `Merge`. A `SortedFileWriter` writes the ordered records to a file.
"""

from __future__ import annotations

from gossipkv.storage._storage import Merge, OrderedSource, RecordSorter, Scratch, SortedFileWriter, Source

__all__ = ["Merge", "OrderedSource", "RecordSorter", "Scratch", "SortedFileWriter", "Source"]
