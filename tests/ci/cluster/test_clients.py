"""Both clients against real nodes that drain, die and come back: no read fails or is answered wrongly."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
import trio

import gossipkv
from gossipkv.client import blocking
from gossipkv.errors import TooLarge, UnknownDatabase
from tests.ci.cluster.node_process import NodeProcess, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.client import trio_client

RECORDS = {b"key%05d" % number: b"value %d" % number for number in range(20_000)}
LONG_MS = 60_000  # No deadline plays a part.
TASKS = 64


def write_source(place: Path, records: dict[bytes, bytes]) -> Path:
    """Write a source with one version of `geo` in two files."""
    version = place / "source" / "geo" / "v1"
    version.mkdir(parents=True)
    lines = [b"%b\t%b\n" % record for record in records.items()]
    for number in range(2):
        (version / f"part-{number}.tsv").write_bytes(b"".join(lines[number::2]))
    return place / "source"


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[list[NodeProcess]]:
    source = write_source(tmp_path, RECORDS)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with NodeProcess(tmp_path / "one", source=source) as one, NodeProcess(tmp_path / "other", source=source) as other:
        for node in (one, other):
            node.ready()
            wait_for(node.address, "geo", "v1")
        yield [one, other]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_tasks_do_not_notice_that_a_node_ends(two_nodes: list[NodeProcess], number: signal.Signals) -> None:
    one, other = two_nodes
    keys = list(RECORDS)
    reads = 0

    async def read(client: trio_client.Client, first: int) -> None:
        nonlocal reads
        data = client.dataset("geo")
        while client.address is None or str(client.address) == one.address or reads < 20_000:
            first = (first + 977) % len(keys)
            assert await data.get(keys[first]) == RECORDS[keys[first]]
            asked = keys[first : first + 5]
            assert await data.get_many(asked) == [RECORDS[key] for key in asked]
            reads += 2

    async with gossipkv.connect(one.address, other.address, timeout_ms=LONG_MS) as client:
        async with trio.open_nursery() as nursery:
            for task in range(TASKS):
                nursery.start_soon(read, client, task)
            while reads < 3000:
                await trio.sleep(0.001)
            one.process.send_signal(number)
        assert str(client.address) == other.address


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_loop_does_not_notice_that_a_node_ends(two_nodes: list[NodeProcess], number: signal.Signals) -> None:
    """The blocking client returns every key once and in order from `iter_get`."""
    one, other = two_nodes
    with blocking.connect(one.address, other.address, timeout_ms=LONG_MS) as client:
        found = []
        for key, value, _ in client.dataset("geo").iter_get(RECORDS):
            found.append((key, value))
            if len(found) == 5000:
                one.process.send_signal(number)
                one.process.wait(60)
        assert found == list(RECORDS.items())
        assert str(client.address) == other.address


async def test_everything_of_a_real_node(two_nodes: list[NodeProcess]) -> None:
    """Scans, options and errors of the Trio client work against a node."""
    async with gossipkv.connect(two_nodes[0].address, timeout_ms=LONG_MS) as client:
        data = client.dataset("geo")
        await client.ping()
        assert (await client.info())["name"] == "gossipkv"
        assert [database["name"] for database in await client.databases()] == ["geo"]
        assert "geo" in await client.status()
        assert await client.refresh("geo") == {"geo": ["v1"]}
        assert [record async for record in data.scan()] == sorted(RECORDS.items())
        assert [key async for key, _ in data.scan(prefix=b"key0001", reverse=True, limit=3)] == [
            b"key00019", b"key00018", b"key00017",
        ]  # fmt: skip
        assert await data.get_with_version("key00007", min_version="v0") == (b"value 7", "v1")
        keys = [*RECORDS, b"absent"]
        assert await data.get_many(keys) == [*RECORDS.values(), None]
        with pytest.raises(UnknownDatabase):
            await client.dataset("other").get(b"k")


async def test_answers_over_the_limit_of_a_real_node(tmp_path: Path) -> None:
    """Both clients fetch values whose sum exceeds a frame in halves; a value above the limit raises `TooLarge`."""
    records = {b"key%d" % number: b"%03d" % number * 7_000 for number in range(40)} | {b"large": b"x" * 70_000}
    with NodeProcess(tmp_path, "--max-frame", "64KiB", source=write_source(tmp_path, records)) as node:
        node.ready()
        wait_for(node.address, "geo", "v1")
        keys = [key for key in records if key != b"large"]
        async with gossipkv.connect(node.address, timeout_ms=LONG_MS) as client:
            assert await client.dataset("geo").get_many(keys) == [records[key] for key in keys]
            with pytest.raises(TooLarge):
                await client.dataset("geo").get_many([*keys, b"large"])
        with blocking.connect(node.address, timeout_ms=LONG_MS) as client:
            assert client.dataset("geo").get_many(keys) == [records[key] for key in keys]
