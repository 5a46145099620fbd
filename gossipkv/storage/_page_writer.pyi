from typing import final

from gossipkv.environment.seam import Files
from gossipkv.storage._scratch import Spool

@final
class PageWriter:
    def __new__(cls, files: Files, descriptor: int, checksums: Spool) -> PageWriter: ...
