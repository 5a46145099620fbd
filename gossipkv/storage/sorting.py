"""Records sorted, merged and written in order: the door to what builders are made of, for those who merge otherwise.

Records in any order, larger than memory, come out of a `RecordSorter` in order, having been put aside in a `Scratch`;
as an `OrderedSource` they are one `Source` among those of a `Merge`; a `SortedFileWriter` makes a file of what comes.
"""

from __future__ import annotations

from gossipkv.storage._storage import Merge, OrderedSource, RecordSorter, Scratch, SortedFileWriter, Source

__all__ = ["Merge", "OrderedSource", "RecordSorter", "Scratch", "SortedFileWriter", "Source"]
