"""Clients of Redis read from real nodes: redis-py, redis-cli, redis-benchmark and node-redis."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from gossipkv.address import parse_address
from tests.ci.cluster.test_datasets import connect, counters, publish, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.address import Address

PATIENCE_S = 60
PAGE = "docs/users/redis.md"
SETTINGS = {"resp_listen": "127.0.0.1:0", "resp_databases": "capitals,carts,geo"}


class Nodes:
    """Two nodes, each with half of a dataset and a table of both."""

    def __init__(self, addresses: list[str], records: dict[bytes, bytes]) -> None:
        self.addresses = addresses
        self.records = records
        self.resp: list[Address] = []
        for address in addresses:
            with connect(address) as client:
                self.resp.append(parse_address(str(client.info()["resp"])))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    place: Path = tmp_path_factory.mktemp("redis")
    records = publish(place / "source", "v1")
    capitals = place / "source" / "capitals" / "1"
    capitals.mkdir(parents=True)
    (capitals / "part-0").write_text("france\tParis\nperu\tLima\nportugal\tLisbon\n")
    with running(place, 2, 1, SETTINGS) as cluster:
        wait_for(cluster, "v1")
        wait_for(cluster, "1", "capitals")
        addresses = [node.address for node in cluster.status()]
        with connect(addresses[0]) as client:
            client.call("create_table", "carts", {"kind": "hash"}, timeout_ms=1000 * PATIENCE_S)
            alone = {"kind": "hash", "partitions": 4, "replication": 1}
            client.call("create_table", "alone", alone, timeout_ms=1000 * PATIENCE_S)
        yield Nodes(addresses, records)


def says(address: Address, data: bytes, answers: int) -> list[bytes]:
    """Return the first lines of a node's answer to some bytes."""
    with socket.create_connection((address.host, address.port), timeout=PATIENCE_S) as connection:
        connection.sendall(data)
        with connection.makefile("rb") as file:
            return [file.readline() for _ in range(answers)]


def test_a_pipeline_comes_back_in_order(nodes: Nodes) -> None:
    """A pipeline of all keys and some inline commands is answered in order, half of it by the other node."""
    keys = [*nodes.records][:2000]
    data = b"".join(b"*2\r\n$3\r\nGET\r\n$%d\r\ngeo:%s\r\n" % (len(key) + 4, key) for key in keys)
    lines = says(nodes.resp[0], data + b"PING\r\nEXISTS geo:key00001 geo:none\r\n", 2 * len(keys) + 2)
    assert [line[:-2] for line in lines[1:-2:2]] == [nodes.records[key] for key in keys]
    assert lines[-2:] == [b"+PONG\r\n", b":1\r\n"]
    assert counters(nodes.addresses[0])["forwarded"] > 500


@pytest.mark.skipif(importlib.util.find_spec("redis") is None, reason="redis-py is not installed")
@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_reads_and_writes(nodes: Nodes, protocol: int) -> None:
    """Gets, pipelines, scans, tables and errors work at either node, with redis-py's own parser or that of hiredis."""
    import redis  # noqa: PLC0415  # Only where it is installed.

    for address in nodes.resp:
        all_of_them = redis.Redis(address.host, address.port, protocol=protocol, socket_timeout=PATIENCE_S)
        geo = redis.Redis(address.host, address.port, db=3, protocol=protocol, socket_timeout=PATIENCE_S)
        carts = redis.Redis(address.host, address.port, db=2, protocol=protocol, socket_timeout=PATIENCE_S)
        with all_of_them, geo, carts:
            keys = sorted(nodes.records)[:500]
            assert geo.ping()
            assert geo.mget([*keys, b"none"]) == [*(nodes.records[key] for key in keys), None]
            pipeline = geo.pipeline(transaction=False)
            for key in keys:
                pipeline.get(key)
            assert pipeline.execute() == [nodes.records[key] for key in keys]
            assert [*geo.scan_iter(match="key0000*", count=7)] == [b"key%05d" % number for number in range(10)]
            assert [*geo.scan_iter(count=1000)] == sorted(nodes.records)
            assert carts.set("mine", "apples")
            assert carts.mset({"mine-a": "1", "mine-b": "2"})
            assert all_of_them.mget("geo:key00007", "carts:mine-a", "carts:mine", "geo:no") == [
                b"v1 7",
                b"1",
                b"apples",
                None,
            ]
            assert all_of_them.exists("carts:mine-a", "geo:key00007", "carts:no") == 2
            assert (carts.getrange("mine", 1, 3), carts.strlen("mine"), carts.type("mine"), carts.ttl("no")) == (
                b"ppl", 6, b"string", -2,
            )  # fmt: skip
            assert carts.set("brief", "x", ex=1000)
            assert carts.expire("mine", 1000)
            assert carts.persist("mine")
            assert 0 < carts.ttl("brief") <= 1000
            assert (carts.ttl("mine"), carts.expire("brief", -1), carts.get("brief")) == (-1, True, None)
            assert sorted(carts.scan_iter(match="mine*")) == [b"mine", b"mine-a", b"mine-b"]
            assert carts.delete("mine-a", "mine-b", "mine") == 3
            assert carts.get("mine") is None
            assert 5000 < geo.dbsize() < 6000
            assert geo.info()["gossipkv_cluster"]
            assert (geo.info("replication")["role"], geo.info("server")["redis_version"]) == ("master", "7.0.0")
            with pytest.raises(redis.ResponseError, match=r"transactions are not supported.*redis\.md#transactions"):
                carts.pipeline().set("in-multi", "1").get("in-multi").execute()
            assert carts.get("in-multi") is None
            with pytest.raises(redis.ResponseError, match="transactions are not supported"), carts.pipeline() as some:
                some.watch("in-multi")
            for command, said in (
                (("GET", "nowhere:k"), "UNKNOWN_DATABASE"),
                (("GET", "key"), "no colon"),
                (("SET", "geo:key", "v"), "BAD_REQUEST geo is a dataset"),
                (("LPUSH", "carts:a", "v"), "unknown command 'LPUSH', with args beginning with: 'carts:a' 'v'"),
                (("SELECT", "4"), "DB index is out of range"),
            ):
                with pytest.raises(redis.ResponseError, match=said):
                    all_of_them.execute_command(*command)


def run(*command: str, where: Path | None = None, typed: str = "") -> str:
    done = subprocess.run(
        command, input=typed, capture_output=True, text=True, timeout=PATIENCE_S, check=True, cwd=where
    )
    return done.stdout


@pytest.mark.skipif(importlib.util.find_spec("redis") is None, reason="redis-py is not installed")
def test_many_keys_and_their_order_at_hosts_and_other_nodes(nodes: Nodes) -> None:
    """Each node has some partitions of `alone` and of `geo`, and the other node has the others."""
    import redis  # noqa: PLC0415  # Only where it is installed.

    keys = [f"{table}:many-{number}" for number in range(2500) for table in ("alone", "carts")]
    for address in nodes.resp:
        with redis.Redis(address.host, address.port, socket_timeout=PATIENCE_S) as client:
            assert client.mset({key: key for key in keys})
            assert client.mget([*keys, "geo:key00001", "alone:no"]) == [*map(str.encode, keys), b"v1 1", None]
            assert client.exists(*keys) == len(keys)
            assert client.unlink(*keys[:3001]) == 3001
            assert client.exists(*keys) == len(keys) - 3001
            assert {client.ttl(f"geo:key{number:05}") for number in range(20)} == {-1}
            pipeline = client.pipeline(transaction=False)
            expected: list[object] = []
            for number in range(100):
                key = f"alone:order-{number}"
                pipeline.set(key, 1).get(key).set(key, 2).set(key, 3).get(key).delete(key).get(key)
                pipeline.set(key, 4).expire(key, 100).set(key, 5).get(key)
                expected += [True, b"1", True, True, b"3", 1, None, True, True, True, b"5"]
            assert pipeline.execute() == expected


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not installed")
def test_redis_cli(nodes: Nodes) -> None:
    """A single command, lines of commands and a scan work."""
    cli = ("redis-cli", "-h", nodes.resp[0].host, "-p", str(nodes.resp[0].port))
    assert run(*cli, "get", "geo:key00007") == "v1 7\n"
    assert run(*cli, "-3", "-n", "3", "mget", "key00007", "none") == "v1 7\n\n"
    assert run(*cli, "-n", "3", "--scan", "--pattern", "key0000*").split() == [f"key{one:05}" for one in range(10)]
    assert run(*cli, typed="set carts:cli 1\nget carts:cli\ndel carts:cli\n") == "OK\n1\n1\n"
    assert "gossipkv_node:" in run(*cli, "info")


@pytest.mark.skipif(shutil.which("redis-benchmark") is None, reason="redis-benchmark is not installed")
def test_redis_benchmark(nodes: Nodes) -> None:
    """The benchmark completes, with a pipeline and without."""
    for pipeline in ("1", "16"):
        told = run(
            "redis-benchmark", "-h", nodes.resp[0].host, "-p", str(nodes.resp[0].port), "-n", "2000", "-c", "8",
            "-P", pipeline, "--csv", "get", "geo:key00007",
        )  # fmt: skip
        assert "geo:key00007" in told


IN_JAVASCRIPT = """
const { createClient } = require("redis");
(async () => {
  const said = [];
  for (const RESP of [2, 3]) {
    const client = createClient({ url: process.argv[2], RESP });
    await client.connect();
    said.push(await client.get("key00007"), await client.mGet(["key00007", "none"]));
    said.push(await Promise.all([1, 2, 3].map((number) => client.get("key0000" + number))));
    said.push((await client.scan("0", { MATCH: "key0000*", COUNT: 20 })).keys.length);
    try { await client.lPush("a", "b"); } catch (error) { said.push(error.message); }
    await client.close();
  }
  console.log(JSON.stringify(said));
})();
"""


@pytest.fixture(scope="module")
def node_redis(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which JavaScript finds node-redis."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node-redis is not installed")
    place = tmp_path_factory.mktemp("javascript")
    found = subprocess.run(["npm", "root", "--global"], capture_output=True, text=True, check=False)
    if not (place / found.stdout.strip() / "redis").is_dir():
        pytest.skip("node-redis is not installed")
    (place / "node_modules").symlink_to(found.stdout.strip())
    return place


def test_a_client_in_javascript(nodes: Nodes, node_redis: Path) -> None:
    """The client reads in both protocols, with its own parser and pipeline."""
    (node_redis / "read.js").write_text(IN_JAVASCRIPT)
    told = json.loads(run("node", "read.js", f"redis://{nodes.resp[1]}/3", where=node_redis))
    once = ["v1 7", ["v1 7", None], ["v1 1", "v1 2", "v1 3"], 10]
    assert told == [*once, "ERR unknown command 'LPUSH', with args beginning with: 'a' 'b' "] * 2
