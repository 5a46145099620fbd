from collections.abc import Sequence
from socket import socket
from typing import Self, final

from gossipkv.loadtest._dialect import Dialect
from gossipkv.loadtest._keys import KeyChooser
from gossipkv.loadtest._ledger import Ledger, Tally
from gossipkv.loadtest._schedule import Schedule
from gossipkv.serving.loop import TlsClient

@final
class Generator:
    def __new__(
        cls,
        dialects: Dialect | Sequence[Dialect],
        sockets: Sequence[socket],
        *,
        in_flight: int,
        batch: int,
        timeout_ms: int,
        seed: int,
        targets: Sequence[int] | None = None,
        chooser: KeyChooser | None = None,
        mix: Sequence[float] | None = None,
        redial: bool = False,
        tls: Sequence[TlsClient | None] | None = None,
    ) -> Self: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def tally(self) -> Tally: ...
    @property
    def connections(self) -> int: ...
    @property
    def duration_ns(self) -> int: ...
    @property
    def unsent(self) -> int: ...
    def settle(self) -> int: ...
    def begin(self, *, rate: float = 0.0, duration_ns: int = 0, requests: int = 0, now_ns: int = -1) -> None: ...
    def begin_stages(self, schedule: Schedule, *, now_ns: int = -1, begun_ns: int = -1) -> None: ...
    def step(self, budget_ms: int) -> bool: ...
    def step_at(self, now_ns: int) -> bool: ...
    def stop(self, *, now_ns: int = -1) -> None: ...
    def close(self, *, reset: bool = False) -> None: ...
