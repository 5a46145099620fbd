"""docs/operators/sizing.md computes with the code's constants, and its results fit real files and a real node."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import time
from pathlib import Path

import pytest

from gossipkv import cli
from gossipkv.dataset.build.job import SPACE_FACTOR, SPACE_PER_PARTITION_BYTES
from gossipkv.settings.config import Config
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.table.store import memory_bytes
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, connect, wait_for
from tests.ci.cluster.pages import blocks_of, checked
from tests.ci.cluster.test_http import dial, gateways
from tests.conftest import ROOT
from tests.unit.serving.secured import Authority

MIB = 1 << 20
TLS_CONNECTIONS = 1000
BODY_MIB = 2  # The maximum size of a body.
POST = b"POST /db/_mget HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
BLOCKS = [block.text for block in blocks_of("docs/operators/sizing.md")]


def computed(first: str = "", last: int = len(BLOCKS)) -> dict[str, float]:
    """Run the blocks of the page, with other values after the first block; return the results."""
    names: dict[str, float] = {}
    for text in (BLOCKS[0], first, *BLOCKS[1:last]):
        exec(text if first else checked(text), names)
    return names


def test_the_example_is_right() -> None:
    """Each value in a comment is the result of its line."""
    computed()


def test_the_page_has_the_constants_of_the_code() -> None:
    """The page's settings are the defaults; its space for builds, log, reserve and tables matches the code."""
    names, defaults = computed(), Config()
    settings = (
        "build_memory", "max_parallel_loads", "max_queued_total", "table_log", "table_merge_memory", "table_segment",
    )  # fmt: skip
    assert {name: names[name] for name in settings} == {name: getattr(defaults, name) for name in settings}
    assert names["reserve"] == EngineOptions().reserve_bytes
    assert names["tables"] - names["copies"] * 2.9 * 1024 == memory_bytes(defaults)
    held = names["source"] * names["share"] * SPACE_FACTOR
    assert names["building"] == held + 43 * SPACE_PER_PARTITION_BYTES


def test_a_built_database_takes_what_the_page_says(tmp_path) -> None:
    """The size of 40,000 records, in each of three sizes, is right to 1 %."""
    for key, value in ((16, 100), (5, 3), (40, 900)):
        source, built = tmp_path / f"{value}.tsv", tmp_path / f"built-{value}"
        source.write_text("".join(f"{number:0{key}}\t{'v' * value}\n" for number in range(40_000)))
        assert cli.run(["build", str(source), str(built), "--partitions", "2"]) == 0
        found = sum(path.stat().st_size for path in built.glob("*.gkv"))
        wanted = computed(f"records, key, value = 40_000, {key}, {value}", 2)["built"]
        assert abs(found / wanted - 1) < 0.01, (key, value, found, wanted)


def held(node: NodeProcess) -> tuple[int, int, int]:
    """Return the numbers of mapped sorted files, of their descriptors, and of all other descriptors."""
    with open(f"/proc/{node.process.pid}/maps") as maps:
        mapped = sum(line.rstrip().endswith(".gkv") for line in maps)
    names = []
    for entry in os.scandir(f"/proc/{node.process.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # A connection may be gone.
            names.append(os.readlink(entry.path))
    files = sum(name.endswith(".gkv") for name in names)
    return mapped, files, len(names) - files


def sizes(tables: Path) -> list[int]:
    """Return the file sizes of a store's log and reserve, in ascending order."""
    return sorted(path.stat().st_size for path in (*(tables / "log").glob("*"), *tables.glob("RESERVE")))


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_connection_by_tls_takes_what_the_page_says(tmp_path, is_idle) -> None:
    """The memory of an idle connection and of a waiting handshake is at most a quarter above the page's."""
    authority = Authority(tmp_path)
    pair, trusted = authority.pair("node", "127.0.0.1"), authority.trusting()
    options = ("--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key), "--frame-timeout", "1h")
    row = re.search(r"by TLS \| ([0-9.]+) KiB, and ([0-9.]+) KiB", (ROOT / "docs/operators/sizing.md").read_text())
    with NodeProcess(tmp_path, *options) as node, contextlib.ExitStack() as stack:
        node.ready()
        host, _, port = node.address.partition(":")
        before_kib = resident_kib(node)
        for _ in range(TLS_CONNECTIONS):
            connection = stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S))
            if is_idle:
                stack.enter_context(trusted.wrap_socket(connection, server_hostname=host))
            else:
                connection.sendall(hello_of(trusted, host))
                assert connection.recv(65_536)
        took_kib = (resident_kib(node) - before_kib) / TLS_CONNECTIONS
    assert took_kib <= 1.25 * float(row[1 if is_idle else 2])


def test_a_gateway_takes_what_the_page_says(tmp_path) -> None:
    """Under bodies that never end, the gateway's peak memory stays below the formula of the page."""
    page = (ROOT / "docs/operators/sizing.md").read_text()
    own_mib = int(re.search(r"its gateway \(`http_listen`\) \| (\d+) MiB", page)[1])
    factor, more_mib = re.search(r"\(1\.1 \+ ([0-9.]+)\) \* max_queued_total \+ (\d+) \* MiB", page).groups()
    queued_mib = Config().max_queued_total // MIB
    with NodeProcess(tmp_path, "--http-listen", "127.0.0.1:0", "--frame-timeout", "1h") as node:
        node.ready()
        ((address, gateway),) = gateways(node)
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(dial(address)) for _ in range(3 * queued_mib // BODY_MIB)]
            for connection in connections:
                with contextlib.suppress(OSError):  # The connection that holds most is closed.
                    connection.sendall(POST % (BODY_MIB * MIB) + bytes(BODY_MIB * MIB - 1))
            give_up_s = time.monotonic() + PATIENCE_S
            while sum(map(is_open, connections)) > queued_mib // BODY_MIB:
                assert time.monotonic() < give_up_s, node.said()
                time.sleep(0.1)
            peak_kib = int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{gateway}/status").read_text())[1])
    assert queued_mib < peak_kib / 1024 <= own_mib + float(factor) * queued_mib + int(more_mib)


def is_open(connection: socket.socket) -> bool:
    """True if the other end has neither answered nor closed the connection."""
    connection.settimeout(0)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def hello_of(trusted: ssl.SSLContext, host: str) -> bytes:
    """Return the first message of a handshake."""
    said = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        trusted.wrap_bio(ssl.MemoryBIO(), said, server_hostname=host).do_handshake()
    return said.read()


def resident_kib(node: NodeProcess) -> int:
    pages = int(Path(f"/proc/{node.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def test_a_node_takes_descriptors_and_disk_as_the_page_says(tmp_path) -> None:
    """A partition takes two descriptors and a mapping; tables take two log segments and the reserve."""
    for version in ("1", "2"):
        directory = tmp_path / "source" / "db" / version
        directory.mkdir(parents=True)
        for part in range(8):
            (directory / f"part-{part}").write_text(f"k{part}\tv\n")
    os.rename(tmp_path / "source" / "db" / "2", tmp_path / "2")
    with NodeProcess(tmp_path, "--table-segment", "1MiB", source=tmp_path / "source") as node:
        node.ready()
        wait_for(node.address, "db", "1")
        assert held(node)[:2] == (8, 2 * 8)
        os.rename(tmp_path / "2", tmp_path / "source" / "db" / "2")
        with connect(node.address) as client:
            client.refresh()
            wait_for(node.address, "db", "2")
        assert held(node)[:2] == (16, 2 * 16)
        with connect(node.address) as client:
            client.call("create_table", "t", {"kind": "hash", "partitions": 1}, timeout_ms=60_000)
            tables = tmp_path / "data" / "tables"
            give_up_s = time.monotonic() + PATIENCE_S
            # These are two segments of the log, and the reserve.
            while (found := sizes(tables)) != [MIB, MIB, 5 * MIB]:
                assert time.monotonic() < give_up_s, found
                time.sleep(0.1)
        assert held(node)[2] <= 30
