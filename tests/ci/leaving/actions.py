"""Requests that wait or stream, and their clients: each is done again and again until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import trio

from gossipkv.client import aio, blocking, trio_client
from gossipkv.errors import GossipKVError, TooOld
from tests.ci.matrix.doors import Action, Database, Place, Refused, http, resp

if TYPE_CHECKING:
    from collections.abc import Callable

PROMISE_S = 5.0
SLACK_S = 5.0  # For a busy machine: two cores run four nodes and all of these clients.
TIMEOUT_MS = 30_000  # Far more than the promise: no request may need its own time to end.
PAUSE_S = 0.2
TABLE, SCANNED = "followed", "scanned"
# Feeds of one table wake each other at their node. So one table has one feed, and one has two feeds and a host for each
# partition: these are not woken if their own host does not tell.
LONE, PAIR = "lone", "pair"
PAIR_KEYS = [b"a", b"b", b"c", b"d", b"e", b"f"]
KEYS = [b"key%05d" % number for number in range(500)]


class Done(NamedTuple):
    """One request that ended: its times, and the code of a refusal."""

    began_s: float
    ended_s: float
    code: str


class Again:
    """A request that is done again and again, in a thread."""

    def __init__(self, name: str, act: Callable[[], object]) -> None:
        self.name, self._act = name, act
        self.done: list[Done] = []
        self.trouble = ""
        self.began_s: float | None = None  # The node of the request under way.
        self._is_over = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._is_over.wait(PAUSE_S):
            self.began_s, code = time.monotonic(), ""
            try:
                self._act()
            except GossipKVError as error:
                code = error.code
            except Refused as refused:
                code = refused.code
            except Exception as error:  # noqa: BLE001  # The test reports it.
                self.trouble = repr(error)
                return
            self.done.append(Done(self.began_s, time.monotonic(), code))
            self.began_s = None

    def end(self) -> None:
        self._is_over.set()

    def fault(self, since_s: float, *, succeeds: bool) -> str | None:
        """Return why the request did not end, or did not go on, within the promise after an event."""
        bound_s = PROMISE_S + SLACK_S
        while True:
            over_s = time.monotonic() - since_s
            after = [one for one in self.done if one.ended_s > since_s]
            if late := [one for one in after if one.ended_s - max(one.began_s, since_s) > bound_s]:
                return f"took longer than {bound_s:.0f} s: {late}"
            if any(
                one.began_s > since_s and one.ended_s < since_s + bound_s and not (succeeds and one.code)
                for one in after
            ):
                return None
            if self.trouble or over_s > bound_s:
                codes = f"{[one.code for one in after]} {self.trouble}"
                return f"no success within {bound_s:.0f} s, but {codes}; {self.under_way_s():.1f} s under way"
            time.sleep(PAUSE_S)

    def under_way_s(self) -> float:
        return 0.0 if self.began_s is None else time.monotonic() - self.began_s


def requests(place: Place, client: blocking.Client, backups: str) -> dict[str, Callable[[], object]]:
    """Return each request of a node that waits for other nodes."""
    call, table = client.call, client.table(SCANNED)
    database, days = Database(SCANNED, "hash"), Database("days", "dataset")
    short, time_ms = {"timeout_ms": 3_000}, {"timeout_ms": TIMEOUT_MS}
    return {
        "get": lambda: table.get(KEYS[0]),
        "get of a newer map": lambda: call("get", SCANNED, KEYS[0], {"config": 1 << 20, "wait_ms": 500, **time_ms}),
        "get of a dataset": lambda: client.dataset("days").get(KEYS[0]),
        "get_many": lambda: table.get_many(KEYS),
        "get_many of a dataset": lambda: client.dataset("days").get_many(KEYS),
        "scan": lambda: list(table.scan(prefix=b"key")),
        "scan of a dataset": lambda: list(client.dataset("days").scan(prefix=b"key")),
        "get of a dataset in time": lambda: call("get", "days", KEYS[0], time_ms),
        "get_many of a dataset in time": lambda: call("get_many", "days", KEYS, time_ms),
        "scan of a dataset in time": lambda: call("scan", "days", time_ms),
        "changes": lambda: call("changes", TABLE, {"start": "snapshot", "prefix": b"absent", "wait_ms": 0}),
        "put": lambda: table.put(b"w", b"v"),
        "put at all": lambda: call("put", SCANNED, b"w", b"v", {"level": "all", **short}),  # The host may be back soon.
        "put_many": lambda: table.put_many([(b"w%d" % number, b"v") for number in range(200)]),
        "delete": lambda: table.delete(b"w"),
        "delete_many": lambda: table.delete_many([b"w%d" % number for number in range(200)]),
        "delete_range": lambda: table.delete_range(prefix=b"w"),
        "verify_table": lambda: call("verify_table", SCANNED, time_ms),
        "partitions": lambda: call("partitions", SCANNED),
        "status": client.status,
        "verdict": lambda: call("verdict"),
        "refresh": lambda: call("refresh", None),
        "hold": lambda: call("hold", "days", "1"),
        "metadata_status": lambda: call("metadata_status", None, time_ms),
        "GET by HTTP": lambda: http(place, Action(database, "get", (KEYS[0],))),
        "_mget": lambda: http(place, Action(database, "get_many", (KEYS,))),
        "_scan": lambda: http(place, Action(database, "scan", (b"key", len(KEYS)))),
        "_scan of a dataset": lambda: http(place, Action(days, "scan", (b"key", len(KEYS)))),
        "_mput": lambda: http(place, Action(database, "put_many", ([(b"w", b"v")],))),
        "MGET": lambda: resp(place, Action(database, "get_many", (KEYS,))),
        "SCAN": lambda: resp(place, Action(database, "scan", (b"key", len(KEYS)))),
        "MSET": lambda: resp(place, Action(database, "put_many", ([(b"w", b"v")],))),
        "backup": lambda: call("backup", backups, {"tables": [SCANNED]}, timeout_ms=30_000),
    }


# While one of three hosts is away, these have no success; they only end.
FAILING = {"put at all", "get of a newer map"}


class Feed:
    """A feed of one client that is followed without an end; `seen` has the values with their times."""

    def __init__(self, follow: Callable[[Place, Feed], object], place: Place) -> None:
        self.seen: dict[bytes, float] = {}
        self.trouble = ""
        self.is_over = False
        self.process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, args=(follow, place), daemon=True)
        self._thread.start()

    def _run(self, follow: Callable[[Place, Feed], object], place: Place) -> None:
        try:
            follow(place, self)
        except Exception as error:  # noqa: BLE001  # The test reports it.
            self.trouble = repr(error)

    def saw(self, value: bytes | None) -> bool:
        self.seen.setdefault(value or b"", time.monotonic())
        return self.is_over

    def end(self) -> None:
        self.is_over = True
        if self.process is not None:
            self.process.kill()


def poll(wait_ms: int, limit: int, table: str = TABLE) -> Callable[[Place, Feed], None]:
    """Return a follower by single polls of the wire, as a client in another language has."""

    def follow(place: Place, feed: Feed) -> None:
        token, started = None, {"start": "snapshot"}
        with blocking.Client([place.address], timeout_ms=wait_ms + 10_000, follows=False) as client:
            while not feed.is_over:
                options = {"wait_ms": wait_ms, "limit": limit, **({"token": token} if token else started)}
                try:
                    rows, token = client.call("changes", table, options)
                except TooOld:
                    raise
                except GossipKVError:
                    rows = []
                    time.sleep(PAUSE_S)
                for row in rows:
                    feed.saw(row[1])
                time.sleep(0.01 if not wait_ms else 0)

    return follow


def by_blocking(place: Place, feed: Feed) -> None:
    with blocking.Client([place.address], follows=False) as client:
        for change in client.table(TABLE).changes(start="snapshot"):
            if feed.saw(change.value):
                return


async def _changes(client: object, feed: Feed) -> None:
    async with client:
        async for change in client.table(TABLE).changes(start="snapshot"):
            if feed.saw(change.value):
                return


def by_aio(place: Place, feed: Feed) -> None:
    asyncio.run(_changes(aio.Client([place.address]), feed))


def by_trio(place: Place, feed: Feed) -> None:
    trio.run(_changes, trio_client.Client([place.address]), feed)


def by_curl(place: Place, feed: Feed) -> None:
    """Follow server-sent events; a stream that ended is opened again at its last id, as browsers do."""
    last = "start=snapshot"
    while not feed.is_over:
        command = ["curl", "-sS", "-N", "-G", "-H", "Accept: text/event-stream", f"http://{place.http}/{TABLE}/"]
        with subprocess.Popen([*command, "--data-urlencode", last], stdout=subprocess.PIPE) as feed.process:
            for line in feed.process.stdout:
                if line.startswith(b"id: "):
                    last = f"token={line[4:].decode().strip()}"
                elif line.startswith(b"data: "):
                    with contextlib.suppress(KeyError):  # The last event may be an error.
                        feed.saw((json.loads(line[6:])["value"] or "").encode())
        time.sleep(PAUSE_S)


FEEDS: dict[str, Callable[[Place, Feed], None]] = {
    "wire": poll(30_000, 100),
    "wire, another limit": poll(30_000, 101),
    "wire, without a wait": poll(0, 102),
    "wire, alone": poll(30_000, 100, LONE),
    "wire, of two": poll(30_000, 100, PAIR),
    "wire, of two, without a wait": poll(0, 101, PAIR),
    "blocking": by_blocking,
    "blocking, a second": by_blocking,
    "aio": by_aio,
    "aio, a second": by_aio,
    "trio": by_trio,
    "events": by_curl,
    "events, a second": by_curl,
}
