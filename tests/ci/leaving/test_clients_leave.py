"""Clients leave or cancel while their requests wait: nothing of them stays at the node."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from typing import TYPE_CHECKING

import msgpack
import pytest
import trio

from gossipkv.client import aio, trio_client
from tests.ci.leaving.actions import KEYS, PROMISE_S, SCANNED, SLACK_S, TABLE
from tests.ci.leaving.stage import MAX_FEEDS, Stage, remaining, running
from tests.ci.matrix.doors import dial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LEAVING = 40  # More than `max_feeds`.


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with running(tmp_path_factory.mktemp("clients")) as stage:
        yield stage


# Clients that leave: the parameters of the wire's requests, the path and the flags of curl, the words of RESP.

ALL = {"level": "all", "timeout_ms": 30_000}  # Waits for the frozen host.
NEWER = {"config": 1 << 20, "wait_ms": 30_000, "timeout_ms": 30_000}  # Waits for a map that nobody has.
WIRE = {
    "changes": ["changes", TABLE, {"wait_ms": 60_000, "start": "snapshot", "prefix": b"absent"}],
    "changes, begun now": ["changes", TABLE, {"wait_ms": 60_000}],
    "get": ["get", SCANNED, b"k", NEWER],
    "get_many": ["get_many", SCANNED, KEYS, NEWER],
    "scan": ["scan", SCANNED, NEWER],
    "put": ["put", TABLE, b"w", b"v", NEWER],
    "put at all": ["put", TABLE, b"w", b"v", ALL],
    "put_many": ["put_many", TABLE, [[b"w", b"v"]], NEWER],
    "put_many at all": ["put_many", TABLE, [[b"w", b"v"]], ALL],
    "delete": ["delete", TABLE, b"w", NEWER],
    "delete_many": ["delete_many", TABLE, [b"w"], NEWER],
    "delete_range": ["delete_range", TABLE, {"prefix": b"w"}, NEWER],
    "verify_table": ["verify_table", SCANNED, {"timeout_ms": 30_000}],
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
    time.sleep(0.5)  # Until the requests are under way.
    if said[-1] in (NEWER, ALL):
        assert stage.gauges()["gossipkv_in_flight_requests"] >= MAX_FEEDS
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
