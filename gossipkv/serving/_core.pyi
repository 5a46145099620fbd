from collections.abc import Sequence
from typing import Self, final

from gossipkv.serving._crew import Crew
from gossipkv.serving._published import PublishedTable
from gossipkv.serving._turn import Turn
from gossipkv.wire.latency import LatencyHistogram

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
        max_queued: int,
        frame_timeout_ms: int,
        output_timeout_ms: int,
        idle_timeout_ms: int,
        scan_limit: int,
        proxy_timeout_ms: int = 100,
        proxy_stage_timeout_ms: int = 25,
        seed: int = 0,
        node: str = "",
        crew: Crew,
        pump: int = 0,
        resp_databases: Sequence[str] = (),
    ) -> Self: ...
    @property
    def turn(self) -> Turn | None: ...
    @property
    def has_retired(self) -> bool: ...
    def publish(self, published: PublishedTable) -> None: ...
    def set_peer(self, column: int, name: str, state: int) -> None: ...
    def forget_peer(self, column: int) -> None: ...
    def set_holder(self, identity: bytes, partitions: int, column: int, bitmap: bytes) -> None: ...
    def forget_route(self, identity: bytes) -> None: ...
    def ask(self, column: int, method: bytes, params: bytes, timeout_ms: int) -> int: ...
    def take_replies(self) -> list[tuple[int, bytes | None, bytes | None]]: ...
    def take_peer_events(self) -> list[tuple[int, str, str | bytes | None]]: ...
    def broken_invariants(self) -> list[str]: ...
    def latency(self) -> dict[str, LatencyHistogram]: ...
    def counters(self) -> dict[str, int]: ...
