from collections.abc import Callable
from typing import final

from gossipkv.storage._page_writer import PageWriter
from gossipkv.storage._scratch import Scratch

@final
class IndexBuilder:
    def __new__(cls, make_scratch: Callable[[], Scratch], limit_bytes: int) -> IndexBuilder: ...
    @property
    def count(self) -> int: ...

@final
class Run:
    def __new__(cls, scratch: Scratch, total: int, level: int) -> Run: ...

@final
class BucketWriter:
    def __new__(cls, out: PageWriter, home_count: int) -> BucketWriter: ...
