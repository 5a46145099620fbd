from typing import Self, final

@final
class PageThreads:
    def __new__(cls) -> Self: ...

@final
class Pager:
    def __new__(cls, threads: PageThreads, seed: int = 0) -> Self: ...
