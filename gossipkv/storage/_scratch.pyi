from collections.abc import Callable
from typing import final

from gossipkv.environment.seam import Files

READ_WRITE_NEW: int

@final
class Scratch:
    path: str
    def __new__(cls, files: Files, path: str) -> Scratch: ...
    @property
    def end(self) -> int: ...
    def close(self) -> None: ...

@final
class Spool:
    def __new__(cls, make_scratch: Callable[[], Scratch], limit: int) -> Spool: ...
    @property
    def size(self) -> int: ...
