from typing import Self, final

__pyx_capi__: dict[str, object]

@final
class ColdPages:
    def __new__(cls, threads: object, seed: int) -> Self: ...
