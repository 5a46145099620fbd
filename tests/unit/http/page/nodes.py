"""Nodes that say what nodes of a real cluster said once, and a small server in front of `Pages`.

`told/` has what four nodes answered (replication 2; `geo` of 8 partitions, `carts-by-day` of 64, `words` of 300): while
all was calm, during an upgrade of `geo` while a version of `words` is broken, when a node had just been killed, when it
was known to be dead, and when another was killed as well.  Bytes are written as `{"hex": ...}`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING

import h11
import trio

from gossipkv.errors import Unavailable, UnknownDatabase
from gossipkv.http.answers import Answer, Request
from gossipkv.http.page.pages import Pages
from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gossipkv.errors import GossipKVError

SCENES = ("calm", "upgrade", "suspected", "killed", "two_killed")


@functools.cache
def _read(scene: str) -> object:
    text = (Path(__file__).parent / "told" / f"{scene}.json").read_text(encoding="utf-8")
    return json.loads(text, object_hook=lambda found: bytes.fromhex(found["hex"]) if set(found) == {"hex"} else found)


def told(scene: str):
    """What was said then: `info`, `members`, `databases`, `status`, and by node `local`."""
    return copy.deepcopy(_read(scene))


class ToldNode:
    """A client of a node that says what was told; `failure` is raised instead."""

    def __init__(self, said, *, local: str | None = None) -> None:
        self.said = said
        self.local = local  # Name of the member that answers for itself alone.
        self.failure: Exception | None = None
        self.asked: list[tuple[str, object]] = []

    async def call(self, method: str, *params, timeout_ms: int | None = None):
        """One answer."""
        await trio.lowlevel.checkpoint()
        self.asked.append((method, params[0] if params else None))
        if self.failure is not None:
            raise self.failure
        if method != "status":
            return self.said[method]
        options = params[0]
        entries = self.said["local"][self.local] if options.get("local") else self.said["status"]
        if options["database"] not in entries:
            raise UnknownDatabase(f"no database {options['database']} here or at the source")
        return {options["database"]: entries[options["database"]]}

    def reach(self, address: str):
        """Connect to another member."""
        names = {member["address"]: member["node"] for member in self.said["members"]}
        return reached(ToldNode(self.said, local=names[address]), self.said["local"].get(names[address]) is not None)


@contextlib.asynccontextmanager
async def reached(node: ToldNode, answers: bool) -> AsyncIterator[ToldNode]:
    """A connection, or why there is none."""
    await trio.lowlevel.checkpoint()
    if not answers:
        raise Unavailable("no node could be reached: connection refused")
    yield node


@contextlib.asynccontextmanager
async def pages_of(node: ToldNode, **given) -> AsyncIterator[Pages]:
    """Pages whose sampler runs."""
    pages = Pages(node, reach=given.pop("reach", node.reach), now_s=lambda: 1_795_342_320.0, **given)
    async with trio.open_nursery() as nursery:
        await nursery.start(pages.run)
        yield pages
        nursery.cancel_scope.cancel()


def request(accept: bytes = b"text/html,*/*;q=0.8") -> Request:
    """What a browser asks."""
    return Request(b"GET", b"/", {b"accept": accept})


async def body_of(answer: Answer) -> str:
    """What was answered, as text."""
    assert isinstance(answer.body, bytes)
    return answer.body.decode()


# A large cluster


def large(nodes: int, partitions: int, *, replication: int = 2):
    """What a node would tell of a database that many nodes share, each partition with so many neighbours."""
    names = [f"node-{number:03}.example.internal" for number in range(1, nodes + 1)]
    shares = [
        PartitionSet.of(partitions, (p for p in range(partitions) if (place - p) % nodes < replication))
        for place in range(nodes)
    ]
    said = told("calm")
    said["info"]["node"] = names[0]
    said["members"] = [
        {"node": name, "address": f"10.0.0.{place}:7070", "state": "alive", "epoch": 1, "incarnation": 0}
        for place, name in enumerate(names)
    ]
    version = said["status"]["geo"]["versions"]["2026-11-20"]
    empty = as_told(PartitionSet.empty(partitions))
    version |= {
        "partition_count": partitions,
        "missing": empty,
        "under_replicated": as_told(PartitionSet.of(partitions, range(0, partitions, 7))),
        "owners": [
            {"node": name, "state": "alive", "ready": as_told(share), "building": empty}
            for name, share in zip(names, shares, strict=True)
        ],
    }
    entry = said["status"]["geo"]
    entry["nodes"] = [{"node": name, "state": "alive", "active": "2026-11-20"} for name in names]
    said["status"] = {"geo": entry}
    said["databases"] = [{"name": "geo"}]
    said["local"] = {}
    return said


def as_told(some: PartitionSet) -> dict[str, object]:
    """A set as `status` tells it with `bitmaps`."""
    return {"count": len(some), "bitmap": some.to_bytes()}


# A server


class Server:
    """Serves pages by h11 on a port of its own, one request a time on each connection."""

    def __init__(self, pages: Pages, gate: Callable[[], GossipKVError | None] = lambda: None) -> None:
        self.pages = pages
        self.gate = gate
        self.requests: list[tuple[str, int]] = []
        self.reports: list[str] = []

    @property
    def pages_told(self) -> int:
        """How many requests for pages were answered."""
        return sum(not path.startswith("/static/") for path, _ in self.requests)

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection."""
        connection = h11.Connection(h11.SERVER)
        with contextlib.suppress(trio.BrokenResourceError, h11.RemoteProtocolError):
            while await self._one(connection, stream):
                connection.start_next_cycle()
        await stream.aclose()

    async def _one(self, connection: h11.Connection, stream: trio.SocketStream) -> bool:
        asked = None
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some(65536))
            elif isinstance(event, h11.Request):
                asked = event
            elif isinstance(event, h11.ConnectionClosed):
                return False
            elif isinstance(event, h11.EndOfMessage):
                break
        assert asked is not None
        answer = await self._answer(asked)
        assert isinstance(answer.body, bytes)
        self.requests.append((asked.target.decode(), answer.status))
        headers = [*answer.headers, (b"Content-Length", str(len(answer.body)).encode())]
        await stream.send_all(
            (connection.send(h11.Response(status_code=answer.status, headers=headers)) or b"")
            + (connection.send(h11.Data(data=answer.body)) or b"")
            + (connection.send(h11.EndOfMessage()) or b"")
        )
        return connection.our_state is h11.DONE

    async def _answer(self, asked: h11.Request) -> Answer:
        path, found = asked.target.decode(), Request(asked.method, asked.target, dict(asked.headers))
        if path == "/":
            return await self.pages.overview(found)
        if path.startswith("/static/"):
            return self.pages.asset(path.removeprefix("/static/"), found) or Answer(404)
        return await self.pages.database(path.strip("/"), found)
