from gossipkv.storage._mapped_file import MappedFile

DEFAULT_CACHE_BYTES: int

class RecordReader(MappedFile): ...
