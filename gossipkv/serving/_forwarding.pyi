from typing import Self, final

from gossipkv.serving._connections import Connections

@final
class Forwarding:
    def __new__(cls, connections: Connections, whole_ms: int, stage_ms: int, seed: int) -> Self: ...
