from typing import Self, final

from gossipkv.node._published import PublishedTable

@final
class Refused:
    error: bytes
    def __new__(cls, error: bytes) -> Self: ...

@final
class Pending:
    handle: int
    msgid: int
    received_ns: int
    method: bytes
    waiting: object
    def __new__(cls, handle: int, msgid: int, received_ns: int, method: bytes, waiting: object) -> Self: ...

@final
class Core:
    def __new__(
        cls,
        *,
        max_frame: int,
        max_depth: int,
        max_elements: int,
        max_key: int,
        max_value: int,
        max_in_flight: int,
        max_in_flight_total: int,
        max_queued: int,
        max_held: int,
        max_connections: int,
        max_connections_per_address: int,
        frame_timeout_ms: int,
        output_timeout_ms: int,
        idle_timeout_ms: int,
        scan_limit: int,
    ) -> Self: ...
    def publish(self, published: PublishedTable) -> None: ...
    def broken_invariants(self) -> list[str]: ...
    def latency(self) -> dict[str, dict[str, float]]: ...
    def counters(self) -> dict[str, int]: ...
