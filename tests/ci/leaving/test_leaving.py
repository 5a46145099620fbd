"""Clients leave or cancel, and asked hosts are killed, frozen or cut off: requests end or go on, and nothing stays.

The asked node holds none of the tables, which three other nodes hold, so it waits for one of these. All requests and
feeds run together, and each event meets each host in turn, since a test cannot know which one is asked.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgpack
import pytest
import trio

from gossipkv.client import aio, blocking, trio_client
from gossipkv.launcher import Cluster
from tests.ci.leaving import actions
from tests.ci.leaving.actions import FEEDS, KEYS, PROMISE_S, SCANNED, SLACK_S, TABLE, Again, Feed
from tests.ci.leaving.relay import Relay
from tests.ci.matrix.doors import Place, curl, dial
from tests.ci.matrix.stage import SETTINGS, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


NODES = (1, 2, 3, 4)
MAX_FEEDS = 20
LEAVING = 40  # More than `max_feeds`.
GAUGES = ("gossipkv_in_flight_requests", "gossipkv_waiting_bytes", "gossipkv_table_waiting_requests",
          "gossipkv_table_waiting_held_bytes", "gossipkv_connections")  # fmt: skip
SPARE_DESCRIPTORS = 8  # Connections between nodes come and go.
SPARE_BYTES = 48 << 20  # Memory that a node may take for other reasons, such as merges.
EVENTS = ("killed", "frozen", "cut")
OUR_SETTINGS = SETTINGS | {"max_feeds": str(MAX_FEEDS), "proxy_timeout": "3s", "proxy_stage_timeout": "200ms"}


class Stage:
    """The cluster, whose nodes are reached through relays, and the asked node that holds none of the tables."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.cluster, self.relays = cluster, {}
        for node in cluster.status():
            host, port = node.address.split(":")
            self.relays[node.index] = stack.enter_context(Relay(host, int(port)))
            cluster.kill(node.index)
        for index, relay in self.relays.items():
            cluster.start(index, settings={"advertise": relay.address}, wait=False)
        cluster.wait_ready(*NODES)
        self.clients: dict[int, blocking.Client] = {}
        for index in NODES:
            self.clients[index] = stack.enter_context(dial(cluster.node(index).address))
        until(self.all_alive)
        for name in (TABLE, SCANNED):
            options = {"kind": "hash", "partitions": 1, "replication": 3}
            until(lambda name=name, options=options: self.clients[1].call("create_table", name, options))
            (only,) = self.clients[1].call("partition_map", name)["partitions"]
            self.hosts = sorted(int(assignment["node"][1:]) for assignment in only["assignments"])
            until(lambda name=name: self.clients[self.hosts[0]].table(name).put(b"first", b"1", level="all") is None)
        (self.asked,) = {*NODES} - {*self.hosts}
        client = self.clients[self.hosts[0]].table(SCANNED)
        until(lambda: client.put_many([(key, b"v" * 100) for key in KEYS], level="all") is None)
        node = cluster.node(self.asked)
        resp = str(self.clients[self.asked].info()["resp"])
        self.place = Place(node.address, str(node.http), resp, actions.TIMEOUT_MS)
        until(lambda: self.clients[self.asked].dataset("days").get(b"") is None)

    def all_alive(self) -> bool:
        return all(
            [member["state"] for member in client.members()] == ["alive"] * len(NODES)
            for client in self.clients.values()
        )

    def put(self, away: int, value: bytes) -> float:
        """Put a value at a host that is not away; return when it was acknowledged."""
        client = self.clients[next(index for index in self.hosts if index != away)]
        until(lambda: client.call("put", TABLE, b"k", value, {"timeout_ms": 2000}))
        return time.monotonic()

    def happen(self, event: str, index: int) -> None:
        match event:
            case "killed":
                self.cluster.kill(index)
            case "frozen":
                self.cluster.send(index, signal.SIGSTOP)
            case "cut":
                self.relays[index].cut = True

    def end(self, event: str, index: int) -> None:
        """Undo an event; return when all nodes see all others, and the host has caught up."""
        match event:
            case "killed":
                self.cluster.start(index)
            case "frozen":
                self.cluster.send(index, signal.SIGCONT)
            case "cut":
                self.relays[index].cut = False
        until(self.all_alive)
        until(lambda: self.clients[self.asked].table(TABLE).put(b"end", b"1", level="all", timeout_ms=2000) is None)

    def gauges(self) -> dict[str, float]:
        """Return what the asked node holds for clients, as its page of metrics has it, and its descriptors."""
        lines = curl(self.place, "/metrics").body.decode().splitlines()
        found = {line.split()[0]: float(line.split()[1]) for line in lines if line.split()[0] in GAUGES}
        process = self.cluster.node(self.asked).process
        return found | {"descriptors": len(os.listdir(f"/proc/{process}/fd"))}

    def memory(self) -> int:
        return self.clients[self.asked].info()["process"]["resident_bytes"]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    place = tmp_path_factory.mktemp("leaving")
    version = place / "source" / "days" / "1"
    version.mkdir(parents=True)
    (version / "part-0.tsv").write_bytes(b"".join(b"%b\tvalue\n" % key for key in KEYS))
    cluster = Cluster(
        place / "c", nodes=len(NODES), source=place / "source", replication=2, http=True, settings=OUR_SETTINGS
    )
    with cluster, ExitStack() as stack:
        yield Stage(cluster, stack)


@pytest.fixture(scope="module")
def found(stage: Stage) -> dict[str, dict[str, list[str]]]:
    """Return the faults of all events by event and request."""
    faults: dict[str, dict[str, list[str]]] = {}
    until(lambda: gauges_fall(stage, stage.gauges()))
    before, memory = stage.gauges(), stage.memory()
    client = blocking.Client([stage.place.address], timeout_ms=actions.TIMEOUT_MS, follows=False)
    acts = actions.requests(stage.place, client, str(stage.cluster.directory / "backups"))
    running = [Again(name, act) for name, act in acts.items()]
    feeds = {name: Feed(follow, stage.place) for name, follow in FEEDS.items()}
    try:
        faults["nothing"] = {f"feed, {name}": [] for name in feeds}
        for number in range(10):  # A feed that polls must not take the change of one that waits.
            judge_feeds(stage, feeds, 0, b"calm %d" % number, faults["nothing"])
        for event in EVENTS:
            faults[event] = {name: [] for name in (*acts, *(f"feed, {name}" for name in feeds))}
            for host in stage.hosts:
                stage.happen(event, host)
                since_s = time.monotonic()
                judge_feeds(stage, feeds, host, f"{event} {host}".encode(), faults[event])
                for one in running:
                    said = one.fault(since_s, succeeds=one.name not in actions.FAILING)
                    faults[event][one.name] += [f"n{host} {event}: {said}"] if said else []
                stage.end(event, host)
    finally:
        for one in [*running, *feeds.values()]:
            one.end()
    stage.put(0, b"the end")  # Ends feeds of clients that wait.
    for one in running:
        until(lambda one=one: one.began_s is None)
    client.close()
    faults["afterwards"] = {"gauges": remaining(stage, before, memory)}
    return faults


def judge_feeds(stage: Stage, feeds: dict[str, Feed], away: int, value: bytes, faults: dict[str, list[str]]) -> None:
    """Put a value; each feed must see it within the promise."""
    at_s = stage.put(away, value)
    give_up_s = at_s + PROMISE_S + SLACK_S
    while time.monotonic() < give_up_s and not all(value in feed.seen or feed.trouble for feed in feeds.values()):
        time.sleep(0.05)
    for name, feed in feeds.items():
        if value not in feed.seen:
            faults[f"feed, {name}"].append(f"{value!r} did not come within {PROMISE_S + SLACK_S:.0f} s {feed.trouble}")


def gauges_fall(stage: Stage, before: dict[str, float]) -> bool:
    return not higher(stage.gauges(), before)


def higher(now: dict[str, float], before: dict[str, float]) -> list[str]:
    return [
        f"{name} is {value:.0f}, was {before[name]:.0f}"
        for name, value in now.items()
        if value > before[name] + (SPARE_DESCRIPTORS if name in {"descriptors", "gossipkv_connections"} else 0)
    ]


def remaining(stage: Stage, before: dict[str, float], memory: int) -> list[str]:
    """Return what the node still holds, once the promised time is over."""
    give_up_s = time.monotonic() + PROMISE_S + SLACK_S
    while (left := higher(stage.gauges(), before)) and time.monotonic() < give_up_s:
        time.sleep(0.2)
    grown = stage.memory() - memory
    return left + ([f"memory has grown by {grown >> 20} MiB"] if grown > SPARE_BYTES else [])


NO_CLIENT = blocking.Client(["127.0.0.1:1"])
ACTS = [*actions.requests(Place("127.0.0.1:1"), NO_CLIENT, ""), *(f"feed, {name}" for name in FEEDS)]


@pytest.mark.parametrize("request_name", ACTS)
@pytest.mark.parametrize("event", EVENTS)
def test_a_request_ends_or_goes_on(found: dict[str, dict[str, list[str]]], event: str, request_name: str) -> None:
    assert not found[event][request_name], "\n".join(found[event][request_name])


@pytest.mark.parametrize("feed", FEEDS)
def test_each_feed_is_told_of_each_change(found: dict[str, dict[str, list[str]]], feed: str) -> None:
    """Feeds that wait and feeds that poll share a node, and nothing happens to it."""
    assert found["nothing"][f"feed, {feed}"] == []


def test_nothing_stays_of_requests_whose_hosts_went(found: dict[str, dict[str, list[str]]]) -> None:
    assert found["afterwards"]["gauges"] == []


# Clients that leave: the parameters of the wire's requests, the path and the flags of curl, the words of RESP.

SLOW = {"timeout_ms": 30_000}
WIRE = {
    "changes": ["changes", TABLE, {"wait_ms": 60_000, "start": "snapshot", "prefix": b"absent"}],
    "changes, begun now": ["changes", TABLE, {"wait_ms": 60_000}],
    "get": ["get", SCANNED, b"k", {"config": 1 << 20, "wait_ms": 3_000, **SLOW}],  # It ends by its own time alone.
    "get_many": ["get_many", SCANNED, KEYS, SLOW],
    "scan": ["scan", SCANNED, SLOW],
    "put": ["put", TABLE, b"w", b"v", {"level": "all", **SLOW}],
    "put_many": ["put_many", TABLE, [[b"w", b"v"]], {"level": "all", **SLOW}],
    "delete": ["delete", TABLE, b"w", {"level": "all", **SLOW}],
    "delete_many": ["delete_many", TABLE, [b"w"], {"level": "all", **SLOW}],
    "delete_range": ["delete_range", TABLE, {"prefix": b"w"}, {"level": "all", **SLOW}],
    "verify_table": ["verify_table", SCANNED, SLOW],
    "verdict": ["verdict"],
    "refresh": ["refresh", None],
}
HTTP = {
    "events": [f"/{TABLE}/?prefix=absent", "-N", "-H", "Accept: text/event-stream"],
    "events of all": [f"/{TABLE}/?start=snapshot", "-N", "-H", "Accept: text/event-stream"],
    "_scan": [f"/{SCANNED}/_scan", "--limit-rate", "1K", "-H", "Content-Type: application/json", "-d", "{}"],
    "put": [f"/{TABLE}/w?level=all", "-X", "PUT", "-d", "v"],
}
RESP = {"SET": ["SET", f"{TABLE}:w", "v"], "SCAN": ["SCAN", "0", "COUNT", "1000"],
        "MGET": ["MGET", *(f"{SCANNED}:k{number}" for number in range(500))]}  # fmt: skip


def left_by_wire(stage: Stage, said: list[object]) -> None:
    host, port = stage.place.address.split(":")
    ends = [socket.create_connection((host, int(port))) for _ in range(LEAVING)]
    for end in ends:
        end.sendall(msgpack.packb([0, 1, said[0], said[1:]]))
    time.sleep(0.5)  # Until the requests are under way; a request that has ended by then is no fault.
    for end in ends:
        end.close()


def left_by_http(stage: Stage, said: list[str]) -> None:
    command = ["curl", "-sS", *said[1:], f"http://{stage.place.http}{said[0]}"]
    for _ in range(2):  # A second round meets the places that the first one has left.
        some = [
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in range(MAX_FEEDS // 4)
        ]
        time.sleep(0.5)
        for one in some:
            one.kill()
            one.wait()


def left_by_resp(stage: Stage, said: list[str]) -> None:
    host, port = stage.place.resp.split(":")
    command = b"*%d\r\n" % len(said) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in said)
    ends = [socket.create_connection((host, int(port))) for _ in range(LEAVING)]
    for end in ends:
        end.sendall(command)
    time.sleep(0.5)
    for end in ends:
        end.close()


async def cancelled_by_aio(stage: Stage, said: list[object]) -> None:
    async with aio.Client([stage.place.address], timeout_ms=60_000) as client:
        for _ in range(2):
            tasks = [asyncio.ensure_future(aio_act(client, said)) for _ in range(MAX_FEEDS - 5)]
            await asyncio.sleep(0.5)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait_for(client.ping(), PROMISE_S + SLACK_S)  # The connection stays usable.
        await asyncio.wait_for(first_change(client), PROMISE_S + SLACK_S)


async def aio_act(client: object, said: list[object]) -> None:
    if said[0] != "changes":
        await client.call(*said)
        return
    async for _ in client.table(TABLE).changes():
        pass


async def first_change(client: object) -> None:
    async for _ in client.table(TABLE).changes(start="snapshot"):
        return


async def cancelled_by_trio(stage: Stage, said: list[object]) -> None:
    async with trio_client.Client([stage.place.address], timeout_ms=60_000) as client:
        for _ in range(2):
            with trio.move_on_after(0.5):
                async with trio.open_nursery() as nursery:
                    for _ in range(MAX_FEEDS - 5):
                        nursery.start_soon(aio_act, client, said)
        with trio.fail_after(PROMISE_S + SLACK_S):
            await client.ping()
            await first_change(client)


LEAVERS: list[tuple[str, str, Callable[[Stage], object]]] = [
    *(("leaves", f"wire {name}", lambda stage, said=said: left_by_wire(stage, said)) for name, said in WIRE.items()),
    *(("leaves", f"HTTP {name}", lambda stage, said=said: left_by_http(stage, said)) for name, said in HTTP.items()),
    *(("leaves", f"RESP {name}", lambda stage, said=said: left_by_resp(stage, said)) for name, said in RESP.items()),
    *(("cancels", f"aio {name}", lambda stage, said=said: asyncio.run(cancelled_by_aio(stage, said)))
      for name, said in WIRE.items()),
    *(("cancels", f"trio {name}", lambda stage, said=said: trio.run(cancelled_by_trio, stage, said))
      for name, said in WIRE.items()),
]  # fmt: skip


@pytest.mark.parametrize(("how", "name", "act"), LEAVERS, ids=[f"{how}-{name}" for how, name, _ in LEAVERS])
def test_nothing_stays_of_a_client(stage: Stage, how: str, name: str, act: Callable[[Stage], object]) -> None:
    """A host is frozen meanwhile, so that requests wait for it; afterwards, feeds have room at once."""
    before, memory, frozen = stage.gauges(), stage.memory(), stage.hosts[-1]
    holds = "level" in str(WIRE.get(name.split(" ", 1)[1], "")) or name == "HTTP put"
    if holds:
        stage.happen("frozen", frozen)
    try:
        act(stage)
    finally:
        if holds:
            stage.end("frozen", frozen)
    assert remaining(stage, before, memory) == []
    with dial(stage.place.address) as client:
        assert next(iter(client.table(TABLE).changes(start="snapshot"))).value is not None
