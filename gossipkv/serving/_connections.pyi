from typing import Self, final

@final
class Connections:
    def __new__(
        cls,
        *,
        max_in_flight: int,
        max_queued: int,
        max_held: int,
        max_connections: int,
        max_connections_per_address: int,
        frame_timeout_ms: int,
        output_timeout_ms: int,
        idle_timeout_ms: int,
    ) -> Self: ...
