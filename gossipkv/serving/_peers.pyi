from typing import Self, final

from gossipkv.serving._connections import Connections

@final
class Peers:
    def __new__(cls, connections: Connections, seed: int) -> Self: ...
    def take_peer_events(self) -> list[tuple[int, str, str | bytes | None]]: ...
