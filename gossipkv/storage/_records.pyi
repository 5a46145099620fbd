from typing_extensions import disjoint_base

from gossipkv.storage._mapped_file import MappedFile

DEFAULT_CACHE_BYTES: int

@disjoint_base
class RecordReader(MappedFile): ...
