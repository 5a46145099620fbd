from typing import Self, final

from gossipkv.serving._connections import Connections

__pyx_capi__: dict[str, object]

@final
class Asking:
    def __new__(cls, connections: Connections, name: str, whole_ms: int, stage_ms: int, seed: int) -> Self: ...
