from typing import Self, final

from gossipkv.storage._pager import PageThreads

__pyx_capi__: dict[str, object]

@final
class ColdPages:
    def __new__(cls, threads: PageThreads, seed: int) -> Self: ...
