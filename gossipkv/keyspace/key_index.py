"""An index of sorted keys, such as the first keys of a table's ranges; `_key_index.pyx` explains it."""

from gossipkv.keyspace._key_index import KeyIndex

__all__ = ["KeyIndex"]
