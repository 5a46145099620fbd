from typing import Self, final

from gossipkv.serving._crew import Crew

@final
class Connections:
    def __new__(
        cls,
        *,
        max_in_flight: int,
        max_queued: int,
        crew: Crew,
        pump: int,
        frame_timeout_ms: int,
        output_timeout_ms: int,
        idle_timeout_ms: int,
    ) -> Self: ...
