"""A node's start fails early and in one line, and a started node runs, reports and stops."""

from __future__ import annotations

import os
import signal
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from gossipkv.address import Address
from gossipkv.client import blocking
from gossipkv.environment.trio_world import real
from gossipkv.errors import BadRequest, DirectoryInUse, LocalError
from gossipkv.node import wiring as node
from gossipkv.node.binding import listen
from gossipkv.settings.config import load
from tests.documented import fields_of
from tests.unit.table.fake_store import FakeStores, put_store

if TYPE_CHECKING:
    from gossipkv.settings.config import Config
    from gossipkv.wire.rpc import Value

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "methods.md"


def config(directory: Path, **settings: str) -> Config:
    """Return the settings of a node in a directory of its own, on a free port."""
    return load(None, {}, {"data": str(directory / "data"), "listen": "127.0.0.1:0", **settings})


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "riscv64")])
def test_other_platforms_are_refused(system: str, machine: str) -> None:
    """The line says that a node needs Linux and that clients run on any system."""
    with pytest.raises(LocalError, match=r"needs Linux on x86-64 or aarch64.*clients run on any system") as caught:
        node.check_platform(system, machine)
    assert "\n" not in caught.value.message
    assert machine in caught.value.message


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_platforms_of_a_node(machine: str) -> None:
    node.check_platform("linux", machine)


async def test_a_port_in_use(tmp_path: Path) -> None:
    """The error has the address, and the data directory is not even made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(LocalError, match=f"cannot listen on {address}: Address already in use; .*--listen"):
            await node.run(config(tmp_path, listen=address), real())
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_a_host_that_is_no_name(host: str) -> None:
    """The host is refused like any other unusable address."""
    with pytest.raises(LocalError, match=f"cannot listen on {host}:7070: .*choose another with --listen"):
        listen(real(), Address(host, 7070))


async def test_runs_ends_and_starts_again(tmp_path: Path) -> None:
    """The node is ready with its address; a second one on the directory is refused; cancelling releases everything."""
    source = tmp_path / "source" / "geo" / "1"
    source.mkdir(parents=True)
    (source / "part-0").write_bytes(b"paris\tFrance\nlima\tPeru\n")
    settings = config(tmp_path, source=str(tmp_path / "source"))

    def read(host: str, port: int) -> bytes | None:
        with blocking.connect(f"{host}:{port}", timeout_ms=60_000) as client:
            assert client.ping() is None
            while client.databases()[0]["version"] is None:
                pass
            assert list(client.dataset("geo").scan()) == [(b"lima", b"Peru"), (b"paris", b"France")]
            return client.dataset("geo").get("lima")

    for _ in range(2):
        async with trio.open_nursery() as nursery:
            address = await nursery.start(node.run, settings, real())
            assert await trio.to_thread.run_sync(read, *address) == b"Peru"
            with pytest.raises(DirectoryInUse):
                await node.run(settings, real())
            nursery.cancel_scope.cancel()


async def test_a_node_with_tables(tmp_path: Path) -> None:
    """The node opens the store of its tables, reports it, and closes it at the stop."""
    settings = config(tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run, settings, real())
        nursery.cancel_scope.cancel()
    put_store(real().files, tmp_path / "data" / "tables", 5, 1)
    stores = FakeStores()

    def ask(host: str, port: int) -> None:
        with blocking.connect(f"{host}:{port}", timeout_ms=60_000) as client:
            assert client.info()["tables"] == {
                "state": "open", "why": None, "lost": False, "store": "0000000000000005", "life": 2,
                "log_damage": None, "counters": {"groups": 3, "syncs": 2, "sync_ns": 1_000},
            }  # fmt: skip
            wrong: list[list[Value]] = [["backup"], [f"{settings.data}/x"], ["/b\0"], [f"/{'b' * 4095}"], [b"\xff"], []]
            for parameters in [*wrong, ["/b/../c"], ["/b", {"tables": 1}], ["/b", {"since": 1}], ["/b", {"x": 1}]]:
                with pytest.raises(BadRequest, match=r"^backup"):
                    client.call("backup", *parameters)

    async with trio.open_nursery() as nursery:
        address = await nursery.start(partial(node.run, settings, real(), seams=node.NodeSeams(open_store=stores)))
        await trio.to_thread.run_sync(ask, *address)
        assert not stores.ends
        os.kill(os.getpid(), signal.SIGTERM)
    assert stores.ends == [2]


async def test_what_a_node_tells_of_itself(tmp_path: Path) -> None:
    """The real `info` has databases, reads, the process and readiness; the page has its keys and those of `status`."""
    source = tmp_path / "source" / "geo" / "1"
    source.mkdir(parents=True)
    (source / "part-0").write_bytes(b"paris\tFrance\nlima\tPeru\n")

    def ask(host: str, port: int) -> tuple[dict[str, Value], dict[str, Value]]:
        with blocking.connect(f"{host}:{port}", timeout_ms=60_000) as client:
            while client.databases()[0]["version"] is None:
                pass
            assert client.dataset("geo").get_many([b"paris", b"lima", b"none"]) == [b"France", b"Peru", None]
            return client.info(), client.status()["geo"]

    async with trio.open_nursery() as nursery:
        address = await nursery.start(node.run, config(tmp_path, source=str(tmp_path / "source")), real())
        info, status = await trio.to_thread.run_sync(ask, *address)
        nursery.cancel_scope.cancel()
    assert fields_of("status") >= status.keys()
    version = status["versions"]["1"].keys()
    assert fields_of("status: a version on this node") | fields_of("status: a version on all nodes") >= version
    assert fields_of("info") == info.keys()
    assert fields_of("by_database") == info["by_database"]["geo"].keys()
    page = PAGE.read_text(encoding="utf-8")
    latency = info["latency"]["local"]
    parts = (info["ready"], info["process"], info["members_by_state"], info["latency"], latency)
    assert [name for part in parts for name in part if f"`{name}`" not in page] == []
    geo = info["by_database"]["geo"]
    assert (geo["version"], geo["versions"]) == ("1", {"ACTIVE": 1})
    assert (geo["hits"], geo["misses"], geo["value_bytes"], geo["forwarded"]) == (2, 1, 10, 0)
    assert info["members_by_state"] == {"alive": 1, "suspect": 0, "dead": 0, "left": 0}
    assert info["ready"] == {"joined": True, "opened": True, "draining": False}
    assert info["process"]["resident_bytes"] > 1 << 20
    assert latency["buckets"][-1][1] == latency["count"] > 0


async def test_the_page_has_each_key_of_a_database(tmp_path: Path) -> None:
    """The page has each key that `databases` returns."""
    file = tmp_path / "settings.toml"
    file.write_text('[databases.geo]\nformat = "tsv"\n')
    settings = load(file, {}, {"data": str(tmp_path / "data"), "listen": "127.0.0.1:0", "source": str(tmp_path)})

    def ask(host: str, port: int) -> list[dict[str, Value]]:
        with blocking.connect(f"{host}:{port}", timeout_ms=60_000) as client:
            return client.databases()

    async with trio.open_nursery() as nursery:
        address = await nursery.start(node.run, settings, real())
        told = await trio.to_thread.run_sync(ask, *address)
        nursery.cancel_scope.cancel()
    assert fields_of("databases") == told[0].keys()
