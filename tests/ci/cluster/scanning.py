"""Scans of a table that run without pause, each of which is checked."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Self

from gossipkv.client import blocking
from gossipkv.errors import GossipKVError
from tests.ci.cluster.table_moves import Failed
from tests.ci.cluster.table_records import TABLE, TIMEOUT_MS
from tests.world.replication.scans import Asked, faults_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

LIMITS = (100, 300, 1000)  # Records of a page.
HELD_S = (0.0, 0.0, 0.05)  # The time until the next page of a cursor is requested.


class Scans:
    """Scans of a whole table or a part, in both directions, each page by another node.

    A page that fails is requested again from another node: a cursor is valid anywhere.
    """

    def __init__(
        self, addresses: Sequence[str], there: Collection[bytes], *, seed: int, held_s: Sequence[float] = HELD_S
    ) -> None:
        """`there`: keys that are never deleted; `held_s`: a scan draws one of these pauses between its pages."""
        self._addresses = [*addresses]
        self._there = sorted(there)
        self._held_s = held_s
        self._random = random.Random(seed)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.done = 0
        self.faults: list[str] = []
        self.failed: list[Failed] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.is_set():
            self._scan(reverse=self._random.random() < 0.5)

    def _scan(self, *, reverse: bool) -> None:
        start, end = sorted(self._random.sample(self._there, 2)) if self._random.random() < 0.5 else (b"", None)
        options = {"reverse": reverse, "limit": self._random.choice(LIMITS), "start": start, "timeout_ms": TIMEOUT_MS}
        options |= {} if end is None else {"end": end}
        held_s = self._random.choice(self._held_s)
        found: list[bytes] = []
        cursor = None
        while not self._ends.is_set():
            more, began_s = {} if cursor is None else {"cursor": cursor}, time.monotonic()
            try:
                with blocking.connect(self._random.choice(self._addresses), timeout_ms=TIMEOUT_MS) as client:
                    rows, cursor, _ = client.call("scan", TABLE, options | more | {"wait_ms": TIMEOUT_MS // 2})
            except (GossipKVError, OSError) as error:
                self.failed.append(Failed(began_s, time.monotonic(), repr(error)))
                continue
            finally:
                self._ends.wait(held_s)
            found += [key for key, _ in rows]
            if cursor is None:
                self.faults += faults_of(found, Asked(start, end, reverse), self._there)
                self.done += 1
                return
