"""An index of sorted keys, such as the first keys of a table's ranges; `key_index.pyx` explains it."""

from gossipkv.keyspace._keyspace import KeyIndex

__all__ = ["KeyIndex"]
