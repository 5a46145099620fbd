from typing import Self, final

@final
class Pager:
    def __new__(cls, seed: int = 0) -> Self: ...
