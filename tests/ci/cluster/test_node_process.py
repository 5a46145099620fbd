"""A real node process starts, reports ready, serves, re-reads its settings and ends."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from gossipkv.client import blocking
from gossipkv.errors import NotReady
from gossipkv.wire import rpc

if TYPE_CHECKING:
    from types import TracebackType

PATIENCE_S = 60.0
KEEPALIVE = "02"


class NodeProcess:
    def __init__(self, directory: Path, *flags: str) -> None:
        self.source = directory / "source"
        self.source.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "gossipkv", "serve", "--listen", "127.0.0.1:0",
                "--source", str(self.source), "--data", str(directory / "data"), *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self.address = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def add(self, database: str, version: str, *files: bytes) -> None:
        add(self.source, database, version, *files)

    def ready(self) -> None:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(PATIENCE_S), "the node never got ready"
        line = self.process.stdout.readline()
        word, _, self.address = line.strip().partition(" ")
        assert word == "ready", (line, self.process.stderr and self.process.stderr.read())

    def connect(self) -> blocking.Client:
        return blocking.connect(self.address, timeout_ms=60_000)

    def until_active(self, database: str, version: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        with self.connect() as client:
            while (database, version) not in {(entry["name"], entry["version"]) for entry in client.databases()}:
                assert time.monotonic() < deadline, client.status()
                time.sleep(0.05)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal and wait; return the exit status, standard output and standard error."""
        self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, output, errors


def add(source: Path, database: str, version: str, *files: bytes) -> None:
    """Publish a version atomically; a version for the node's first look is published before the start."""
    building = source / database / f".{version}"
    building.mkdir(parents=True)
    for number, data in enumerate(files):
        (building / f"part-{number:05}").write_bytes(data)
    building.rename(source / database / version)


def modes(root: Path) -> set[tuple[str, int]]:
    """Return the kinds and modes of a directory and its content."""
    found = [root, *root.rglob("*")]
    return {("directory" if path.is_dir() else "file", stat.S_IMODE(path.lstat().st_mode)) for path in found}


def warned(node: NodeProcess) -> list[str]:
    """Return the node's warnings about its directory's mode until geo is served; end the node."""
    node.ready()
    node.until_active("geo", "1")
    node.process.terminate()
    assert node.process.stderr is not None
    return [line for line in node.process.stderr if "not_private" in line]


def test_what_a_node_writes_is_nobody_else_s(tmp_path: Path) -> None:
    """All files of the node and its builders are private under any umask; an open directory is kept with a warning."""
    data = tmp_path / "data"
    before = os.umask(0o022)
    try:
        add(tmp_path / "source", "geo", "1", b"a\t1\n")
        with NodeProcess(tmp_path) as node:
            assert warned(node) == []
        assert modes(data) == {("directory", 0o700), ("file", 0o600)}
        assert len(list(data.rglob("*.gkv"))) == 1
        data.chmod(0o750)
        with NodeProcess(tmp_path) as node:
            (line,) = warned(node)
        assert "mode=0750" in line
        assert stat.S_IMODE(data.stat().st_mode) == 0o750
    finally:
        os.umask(before)


def test_what_is_not_built_yet_is_said_and_waited_for(tmp_path: Path) -> None:
    """The log names versions that are not built when the node is ready, and a read waits for the build."""
    add(tmp_path / "source", "geo", "1", b"a\t1\n")
    with NodeProcess(tmp_path, "--require-success-file") as node:
        node.ready()
        with node.connect() as client:
            with pytest.raises(NotReady, match="waits for a file _SUCCESS"):
                client.dataset("geo").get("a")
            (node.source / "geo/1/_SUCCESS").touch()
            client.refresh("geo")
            assert client.dataset("geo").get("a", timeout_ms=int(1000 * PATIENCE_S)) == b"1"
        node.process.terminate()
        assert node.process.stderr is not None
        said = node.process.stderr.read()
        (line,) = (line for line in said.splitlines() if "not_served_yet" in line)
        assert "database=geo" in line
        assert "version 1 waits for a file _SUCCESS" in line


def test_settings_of_databases_are_read_again(tmp_path: Path) -> None:
    """SIGHUP applies the databases' tables of the file; an invalid file changes nothing and is reported."""
    file = tmp_path / "gossipkv.toml"
    file.write_text("[databases.geo]\nformat = 'sequence'\n")
    add(tmp_path / "source", "geo", "1", b"paris\tFrance\n")
    with NodeProcess(tmp_path, "--refresh-period", "off", "--config", str(file)) as node:
        node.ready()
        assert node.process.stderr is not None
        while "build_failed" not in node.process.stderr.readline():
            pass
        file.write_text("[databases.geo]\nformt = 'tsv'\n")
        node.process.send_signal(signal.SIGHUP)
        while "settings_unchanged" not in (line := node.process.stderr.readline()):
            pass
        assert f"{file}:2: databases.geo: unknown setting formt; the nearest known setting is format" in line
        file.write_text("[databases.geo]\nformat = 'tsv'\n")
        node.process.send_signal(signal.SIGHUP)
        node.until_active("geo", "1")
        assert node.end()[0] == 0


def test_a_drain_answers_what_was_asked(tmp_path: Path) -> None:
    """A thousand requests under way at SIGTERM are all answered before the node ends."""
    add(tmp_path / "source", "geo", "1", b"paris\tFrance\n")
    with NodeProcess(tmp_path) as node:
        node.ready()
        node.until_active("geo", "1")
        host, _, port = node.address.rpartition(":")
        request = rpc.request(7, "get", ["geo", "paris"]) + rpc.request(8, "status", [])
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
            client.sendall(request * 500)
            node.process.send_signal(signal.SIGTERM)
            received = b""
            while data := client.recv(1 << 16):
                received += data
        assert received.count(rpc.response(7, [b"France", "1"])) == 500
        assert node.process.wait(PATIENCE_S) == 0


def test_a_drain_answers_the_polls_of_feeds_at_once(tmp_path: Path) -> None:
    """The node ends before its polls would, and its idle connections are watched by keepalive."""
    with NodeProcess(tmp_path, "--profile", "local") as node:
        node.ready()
        with node.connect() as client:
            client.call("create_table", "carts", {"kind": "hash", "partitions": 2, "replication": 1})
            _, token = client.call("changes", "carts", {})
        host, _, port = node.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            connection.sendall(rpc.request(1, "changes", ["carts", {"token": token, "wait_ms": 60_000}]))
            time.sleep(0.5)
            assert timer_of(int(port), connection.getsockname()[1]) == KEEPALIVE
            began = time.monotonic()
            node.process.terminate()
            answer = connection.recv(1 << 16)
            assert b"UNAVAILABLE" in answer, answer
            node.process.wait(PATIENCE_S)
        assert time.monotonic() - began < 5.0


def timer_of(port: int, other: int) -> str:
    """Return the timer of the connection of a local port to another one, as the kernel tells it."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (timer,) = [row[5] for row in rows if row[1].endswith(f":{port:04X}") and row[2].endswith(f":{other:04X}")]
    return timer.partition(":")[0]


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    """A second SIGTERM ends a node whose peer would otherwise keep it draining for an hour."""
    add(tmp_path / "source", "geo", "1", b"paris\t" + b"x" * 1_000_000 + b"\n")
    with NodeProcess(tmp_path, "--drain-timeout", "1h", "--output-timeout", "1h") as node:
        node.ready()
        node.until_active("geo", "1")
        host, _, port = node.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
            client.sendall(rpc.request(7, "get", ["geo", "paris"]) * 50)
            client.recv(1)
            node.process.send_signal(signal.SIGTERM)
            assert node.process.stderr is not None
            while "draining" not in node.process.stderr.readline():
                pass
            with pytest.raises(subprocess.TimeoutExpired):
                node.process.wait(0.3)
            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait(PATIENCE_S) == 0


def test_a_signal_before_it_is_ready(tmp_path: Path) -> None:
    """SIGTERM during the first look at the source ends the node without an error."""
    program = (
        "import sys, time\nfrom gossipkv import cli\n"
        "from gossipkv.environment import real_files\n"
        "def hang(self, path):\n    print('looks', flush=True)\n    time.sleep(600)\n"
        "source = real_files.RealFiles.list_directory\n"
        "real_files.RealFiles.list_directory = lambda self, path: ("
        "hang if str(path) == '/the/source' else source)(self, path)\n"
        "sys.exit(cli.run(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "serve", "--source", "/the/source", "--data", str(tmp_path / "data")]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "looks\n"
        process.terminate()
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err


def test_what_stands_in_the_way_is_one_line(tmp_path: Path) -> None:
    """A port or directory in use gives exit status 3 and one line on standard error, without a traceback."""
    with NodeProcess(tmp_path) as node:
        node.ready()
        (tmp_path / "other").mkdir()
        with NodeProcess(tmp_path / "other", "--listen", node.address) as second:
            output, errors = second.process.communicate(timeout=PATIENCE_S)
            assert (second.process.returncode, output) == (3, "")
            (line,) = errors.splitlines()
            assert f"cannot listen on {node.address}" in line
        with NodeProcess(tmp_path) as third:
            _, errors = third.process.communicate(timeout=PATIENCE_S)
            assert third.process.returncode == 3
            (line,) = errors.splitlines()
            assert str(tmp_path / "data") in line


def test_a_killed_node_starts_again(tmp_path: Path) -> None:
    """SIGKILL after a version was active does not lose it."""
    add(tmp_path / "source", "geo", "1", b"paris\tFrance\n")
    with NodeProcess(tmp_path) as node:
        node.ready()
        node.until_active("geo", "1")
        assert node.end(signal.SIGKILL)[0] == -signal.SIGKILL
    with NodeProcess(tmp_path) as node:
        node.ready()
        with node.connect() as client:
            assert client.dataset("geo").get("paris") == b"France"
