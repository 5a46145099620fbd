"""A rolling restart of three nodes under clients that know all of them: no read fails, in threads and under asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Self

import gossipkv
from tests.ci.cluster.test_datasets import PATIENCE_S, publish, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NODES = 3
THREADS = TASKS = 16
READS = 2_000  # The reads of each kind during one step of a restart.
# A node that is asked for a partition of a stopped one asks another replica within the time of a read.
SETTINGS = {"proxy_timeout": "2s", "drain_timeout": "20s", "reassign_after": "1h"}
TIMEOUT_MS = 30_000  # A busy machine must not make reads fail; each node is back later than reads are repeated.


class Reads:
    """16 threads that share one client, and 16 tasks that share another; each answer is checked."""

    def __init__(self, addresses: list[str], truth: Mapping[bytes, bytes]) -> None:
        self._addresses, self._truth, self._keys = addresses, truth, list(truth)
        self._stop = threading.Event()
        self.done = {"threads": 0, "tasks": 0}
        self.trouble: list[str] = []
        self._client = gossipkv.blocking.connect(addresses, timeout_ms=TIMEOUT_MS)
        self._threads = [threading.Thread(target=self._read, args=(number,)) for number in range(THREADS)]
        self._threads.append(threading.Thread(target=lambda: asyncio.run(self._run_tasks())))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._client.close()

    def wait(self, reads: int) -> None:
        """Return when so many more reads of each kind are answered."""
        until = {kind: done + reads for kind, done in self.done.items()}
        give_up_s = time.monotonic() + PATIENCE_S
        while any(self.done[kind] < until[kind] for kind in until) and not self.trouble:
            assert time.monotonic() < give_up_s, (self.done, until)
            time.sleep(0.01)

    def _check(self, kind: str, key: bytes, found: bytes | None) -> None:
        self.done[kind] += 1
        if found != self._truth[key]:
            self.trouble.append(f"{kind}: {key!r} is {found!r}")

    def _read(self, at: int) -> None:
        data = self._client.dataset("geo")
        while not self._stop.is_set():
            at = (at + 977) % len(self._keys)
            try:
                self._check("threads", self._keys[at], data.get(self._keys[at]))
            except Exception as error:  # noqa: BLE001  # Told to the test.
                self.trouble.append(f"threads: {error!r}")

    async def _run_tasks(self) -> None:
        async def read(data: gossipkv.aio.Dataset, at: int) -> None:
            while not self._stop.is_set():
                at = (at + 977) % len(self._keys)
                try:
                    self._check("tasks", self._keys[at], await data.get(self._keys[at]))
                except Exception as error:  # noqa: BLE001  # Told to the test.
                    self.trouble.append(f"tasks: {error!r}")

        async with (
            gossipkv.aio.connect(self._addresses, timeout_ms=TIMEOUT_MS) as client,
            asyncio.TaskGroup() as group,
        ):
            for number in range(TASKS):
                group.create_task(read(client.dataset("geo"), number))


def test_a_rolling_restart_fails_no_read(tmp_path: Path) -> None:
    truth = publish(tmp_path / "source", "v1")
    with running(tmp_path, NODES, 2, SETTINGS) as cluster:
        wait_for(cluster, "v1")
        with Reads(cluster.addresses, truth) as reads:
            reads.wait(READS)
            for index in range(1, NODES + 1):
                cluster.stop(index)
                cluster.wait_ended(index)
                reads.wait(READS)
                cluster.start(index)
                cluster.wait_ready(index)
                reads.wait(READS)
        assert reads.trouble == []
