"""Nodes that repeat recorded answers of a real cluster, and a small server in front of `StatusPages`.

`told/` has the answers of four nodes (replication 2; `geo` of 8 partitions, `carts-by-day` of 64, `words` of 300): in a
calm cluster, during an upgrade of `geo` with a broken version of `words`, right after a node was killed, when it was
known to be dead, and after a second node was killed.  Bytes are written as `{"hex": ...}`.
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

from gossipkv.errors import UnknownDatabase
from gossipkv.http.answers import HttpAnswer, HttpRequest
from gossipkv.http.page.pages import StatusPages
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.status.judging.judge import judge
from gossipkv.status.reports import KINDS, PartitionHost
from gossipkv.status.verdict import ClusterVerdict, MemberReports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gossipkv.errors import GossipKVError

SCENES = ("calm", "upgrade", "suspected", "killed", "two_killed")


@functools.cache
def _read(scene: str) -> object:
    text = (Path(__file__).parent / "told" / f"{scene}.json").read_text(encoding="utf-8")
    return json.loads(text, object_hook=lambda found: bytes.fromhex(found["hex"]) if set(found) == {"hex"} else found)


def told(scene: str):
    """Return the recorded `info`, `members`, `databases`, `status` and, by node, `local`."""
    return copy.deepcopy(_read(scene))


def judged(said) -> ClusterVerdict:
    states = {member["node"]: member["state"] for member in said["members"]}
    away = {name: state for name, state in states.items() if state in {"dead", "suspect"}}
    reports, silent = {}, {}
    for name, state in states.items():
        here = said["local"].get(name, {}) if name != said["info"]["node"] else said["status"]
        if here is not None:
            databases = {each: reported(entry, here.get(each, {})) for each, entry in said["status"].items()}
            reports[name] = {"away": away, "databases": databases, **said.get("reports", {}).get(name, {})}
        elif state != "dead":
            silent[name] = "no node could be reached: connection refused"
    return judge(MemberReports(said["info"]["node"], states, reports, silent))


def reported(entry, here):
    """Return a node's report of a database from the shared `entry` and the node's own state `here`."""
    if entry.get("kind") in KINDS:
        lags = {
            node["node"]: {"records": node["lag_records"], "seconds": node["lag_s"]}
            for node in entry["nodes"]
            if node.get("lag_records")
        }
        return {"kind": entry["kind"], "unwell": entry["unwell"], "lags": lags}
    active, versions = here.get("active", entry["active"]), here.get("versions", {})
    told = {"kind": "dataset", "active": active, "error": entry.get("error"), "versions": {}}
    newest = max(entry["versions"], default=None)
    if newest != active:
        told["awaits"] = newest
    for name, shared in entry["versions"].items():
        mine = versions.get(name, {})
        noted = {key: mine[key] for key in ("error",) if key in mine}
        if mine.get("state") == "BUILDING" or name == told.get("awaits"):
            noted |= {"state": mine.get("state"), "progress": mine.get("progress")}
        if name == active:
            noted |= _lacks(entry, shared)
        told["versions"][name] = noted
    return told


def _lacks(entry, version):
    """Return the partitions of an active version that are missing or under-replicated, as all nodes report them."""
    count, found = version["partition_count"], {}
    for key in ("missing", "under_replicated"):
        some = PartitionSet.from_bytes(count, version[key]["bitmap"]) if version[key]["count"] else ()
        if some:
            found[key] = {"count": len(some), "runs": some.in_words(8)}
    away = [owner["node"] for owner in version["owners"] if owner["state"] == "dead"]
    more = {"partition_count": count, "replication": entry["replication"], "away": away, "at_source": True}
    return found | more | {"reassign_after_ms": 60_000, "switched_ms": entry.get("switched_ms")} if found else {}


class ToldNode:
    """A client of a node that repeats recorded answers, or raises `failure`.

    `values` has the value or error under each key, by database.
    """

    def __init__(self, said, values=None) -> None:
        self.said = said
        self.values = values or {}
        self.failure: Exception | None = None
        self.asked: list[tuple[str, object]] = []

    async def call(self, method: str, *params, timeout_ms: int | None = None):
        await trio.lowlevel.checkpoint()
        self.asked.append((method, params[0] if params else None))
        if self.failure is not None:
            raise self.failure
        if method == "get":
            return self._get(*params)
        if method == "verdict" and "verdict" not in self.said:
            verdict = judged(self.said)
            return (verdict.about(params[0]["database"]) if params else verdict).to_map()
        if method == "partition_map":
            return self._partition_map(*params)
        if method == "partitions":
            return self._partitions(*params)
        if method != "status":
            return self.said[method]
        options = params[0]
        if options["database"] not in self.said["status"]:
            raise UnknownDatabase(f"no database {options['database']} here or at the source")
        return {options["database"]: self.said["status"][options["database"]]}

    def _get(self, database: str, key: bytes, options):
        assert options == {"explain": True}
        if database not in self.said["status"]:
            raise UnknownDatabase(f"no database {database} here or at the source")
        found = self.values.get(database, {}).get(key)
        if isinstance(found, Exception):
            raise found
        return [found, self.said["status"][database].get("active"), {"node": "n2"}]

    def _partition_map(self, table: str, options):
        """Return two partitions a page; nodes page larger maps."""
        rows, start = self.said["assigned"][table], int(options.get("start", b"0"))
        page = [
            {"assignments": [{"node": one.node, "slot": one.slot, "state": one.state} for one in assigned]}
            for assigned in rows[start : start + 2]
        ]
        more = {"next": str(start + 2).encode()} if start + 2 < len(rows) else {}
        return {"kind": "hash", "partitions": page, **more}

    def _partitions(self, table: str, options):
        """Return a page of ranges with the `measured` size and rate of each."""
        told = self._partition_map(table, options)
        start = int(options.get("start", b"0"))
        rows = zip(told["partitions"], self.said["measured"][start:], strict=False)
        page = [
            {"id": 900 + number, "start": b"\xfe%d" % number, "end": b"k%d" % number, "rows": 7, "bytes": size,
             "rate": rate, "hosts": one["assignments"]}
            for number, (one, (size, rate)) in enumerate(rows, start)
        ]  # fmt: skip
        return {**told, "kind": "range", "partitions": page}


@contextlib.asynccontextmanager
async def pages_of(node: ToldNode) -> AsyncIterator[StatusPages]:
    pages = StatusPages(node, now_s=lambda: 1_795_342_320.0)
    async with trio.open_nursery() as nursery:
        await nursery.start(pages.run)
        yield pages
        nursery.cancel_scope.cancel()


def request(accept: bytes = b"text/html,*/*;q=0.8", target: bytes = b"/") -> HttpRequest:
    return HttpRequest(b"GET", target, {b"accept": accept})


CARTS = {
    "kind": "hash",
    "replication": 2,
    "partition_count": 5,
    "nodes": [
        {"node": "n1", "state": "alive", "partitions": 4, "lag_records": 0, "lag_s": 0.0},
        {"node": "n2", "state": "alive", "partitions": 3, "lag_records": 0, "lag_s": 0.0},
        {"node": "n3", "state": "alive", "partitions": 3, "lag_records": 0, "lag_s": 0.0},
    ],
    "unwell": [],
}


def with_table(said):
    """Add a table `carts` of five partitions, whose acceptors are three nodes."""
    said["status"]["carts"] = copy.deepcopy(CARTS)
    said["databases"].append({"name": "carts"})
    pairs = ["n1", "n2"], ["n1", "n3"], ["n2", "n1"], ["n3", "n2"], ["n1", "n3"]
    rows = [[PartitionHost(one, 0, "AVAILABLE"), PartitionHost(other, 1, "AVAILABLE")] for one, other in pairs]
    said["assigned"] = {"carts": rows}
    said["reports"] = {
        node: {"acceptors": ["n1", "n2", "n3"]} for node, here in said["local"].items() if here is not None
    }
    return said


async def body_of(answer: HttpAnswer) -> str:
    assert isinstance(answer.body, bytes)
    return answer.body.decode()


# A large cluster


def large(nodes: int, partitions: int, *, replication: int = 2):
    """Return the answers of a large cluster that shares one database."""
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
    """Return a set in the form that `status` has with `bitmaps`."""
    return {"count": len(some), "bitmap": some.to_bytes()}


# A server


class Server:
    """A server of the pages by h11 on a free port, one request at a time on each connection."""

    def __init__(self, pages: StatusPages, gate: Callable[[], GossipKVError | None] = lambda: None) -> None:
        self.pages = pages
        self.gate = gate
        self.requests: list[tuple[str, int]] = []
        self.reports: list[str] = []

    @property
    def pages_told(self) -> int:
        return sum(not path.startswith("/static/") for path, _ in self.requests)

    async def serve(self, stream: trio.SocketStream) -> None:
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

    async def _answer(self, asked: h11.Request) -> HttpAnswer:
        path, found = asked.target.decode().split("?")[0], HttpRequest(asked.method, asked.target, dict(asked.headers))
        if path == "/":
            return await self.pages.overview(found)
        if path.startswith("/static/"):
            return self.pages.asset(path.removeprefix("/static/"), found) or HttpAnswer(404)
        return await self.pages.database(path.strip("/"), found)
