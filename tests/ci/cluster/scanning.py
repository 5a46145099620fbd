"""Scans of a table that go on all the while, and what is wrong with one: each key that was there throughout, once."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Self

from gossipkv.client import blocking
from gossipkv.errors import GossipKVError
from tests.ci.cluster.table_records import TABLE, TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

LIMITS = (7, 100, 1000)  # Records of a page.


def faults_of(found: Sequence[bytes], there: Collection[bytes], *, reverse: bool = False) -> list[str]:
    """What is wrong with the keys of a scan; `there`: those that were there from its begin to its end."""
    faults = []
    in_order = [*found][:: -1 if reverse else 1]
    if in_order != sorted({*found}):
        faults.append(f"{len(found) - len({*found})} keys came twice, or not in order")
    if lacking := {*there} - {*found}:
        faults.append(f"{len(lacking)} keys were left out, such as {min(lacking)!r}")
    return faults


class Scans:
    """Scans of all of a table, or of a part, in both directions, each page by another node."""

    def __init__(self, addresses: Sequence[str], there: Collection[bytes], *, seed: int) -> None:
        """`there`: keys that nobody deletes."""
        self.addresses = [*addresses]
        self._there = sorted(there)
        self._random = random.Random(seed)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.done = 0
        self.faults: list[str] = []
        self.failed: list[str] = []

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
        found: list[bytes] = []
        cursor = None
        while not self._ends.is_set():
            more = {} if cursor is None else {"cursor": cursor}
            try:
                with blocking.connect(self._random.choice(self.addresses), timeout_ms=TIMEOUT_MS) as client:
                    rows, cursor, _ = client.call("scan", TABLE, options | more | {"wait_ms": TIMEOUT_MS // 2})
            except (GossipKVError, OSError) as error:
                self.failed.append(f"{error}")
                return
            found += [key for key, _ in rows]
            if cursor is None:
                there = [key for key in self._there if start <= key and (end is None or key < end)]
                self.faults += faults_of(found, there, reverse=reverse)
                self.done += 1
                return
