"""A node, a client that reads from it without pause, and ways to be a hostile peer."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import msgpack

from gossipkv.serving import pumps
from gossipkv.wire import rpc
from tests.ci.cluster.bystander import PERIOD_MS
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[3]
KEYS = 1000
RECORDS = {b"key%04d" % number: b"value%d" % number for number in range(KEYS)} | {b"big": b"x" * 1_000_000}
PING = rpc.request(1, "ping", [])
PONG = rpc.response(1, "pong")

SETTINGS = [
    "--max-connections", "300", "--max-connections-per-address", "250", "--max-queued", "1MiB",
    "--max-queued-total", "8MiB", "--pumps", "2",
]  # fmt: skip
HURRIED = ["--frame-timeout", "1s", "--output-timeout", "1s"]
UNHURRIED = ["--frame-timeout", "60s", "--output-timeout", "60s"]  # The hostile peers themselves may be slow.
GET = rpc.request(7, "get", ["geo", b"key0001"])
GOT = rpc.response(7, [RECORDS[b"key0001"], "1"])
BIG = rpc.request(8, "get", ["geo", b"big"])
TYPED = {
    "BAD_REQUEST", "UNKNOWN_METHOD", "UNKNOWN_DATABASE", "UNKNOWN_VERSION", "NOT_READY", "TOO_LARGE", "OVERLOADED",
}  # fmt: skip

TRIES = 4

_Given = ParamSpec("_Given")


class StarvedError(AssertionError):
    """Carries p99 before, p99 and the maximum, all in ms."""


def patient(test: Callable[_Given, None]) -> Callable[_Given, None]:
    """Retry a starved bystander: a shared machine may stall once, a defective node stalls each time."""

    @functools.wraps(test)
    def run(*given: _Given.args, **named: _Given.kwargs) -> None:
        for _ in range(TRIES - 1):
            try:
                return test(*given, **named)
            except StarvedError:
                time.sleep(1)
        return test(*given, **named)

    return run


class Bystander:
    """A process that reads from a node and checks each answer; it ends at the first wrong or missing answer."""

    def __init__(self, node: NodeProcess) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.ci.cluster.bystander", node.address, str(node.process.pid)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.told()

    def told(self) -> str:
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return line

    def has_every_answer(self) -> None:
        """Check all answers until now, and discard their delays."""
        self._ask()

    def late_ms(self, least_ms: float) -> list[float]:
        """Return how late each answer was since the last call, over at least `least_ms`."""
        found, elapsed_ms = self._ask()
        while elapsed_ms < least_ms:
            time.sleep((least_ms - elapsed_ms) / 1000)
            more, further_ms = self._ask()
            found, elapsed_ms = found + more, elapsed_ms + further_ms
        assert len(found) > 0.5 * elapsed_ms / PERIOD_MS, (len(found), elapsed_ms)
        return found

    def _ask(self) -> tuple[list[float], float]:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.told())

    def close(self) -> None:
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE_S)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def p99(late_ms: list[float]) -> float:
    return sorted(late_ms)[len(late_ms) * 99 // 100]


@dataclass
class Victim:
    node: NodeProcess
    bystander: Bystander
    began_s: float = field(default_factory=time.monotonic)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.node.address.rpartition(":")
        return host, int(port)

    def connect(self, *, source: str = "", receive_buffer: int | None = None) -> socket.socket:
        """Connect from a separate address: thousands of connections would use up the ports of a single address."""
        source = source or f"127.0.1.{1 + next(self.numbers) % 250}"
        peer = socket.socket()
        if receive_buffer is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        peer.settimeout(PATIENCE_S)
        peer.bind((source, 0))
        peer.connect(self.place)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return peer

    def counters(self) -> dict[str, int]:
        with self.connect() as peer:
            return info(peer)["counters"]

    def until(self, name: str, least: int) -> None:
        give_up_s = time.monotonic() + PATIENCE_S
        while (counters := self.counters())[name] < least:
            assert time.monotonic() < give_up_s, (name, least, counters)
            time.sleep(0.05)

    def sleeps(self) -> int:
        """Return how often the main thread of the node has gone to sleep."""
        status = Path(f"/proc/{self.node.process.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)$", status, re.MULTILINE).group(1))

    def memory_kib(self, name: str = "VmHWM") -> int:
        status = Path(f"/proc/{self.node.process.pid}/status").read_text(encoding="ascii")
        return int(re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE).group(1))

    @contextlib.contextmanager
    def undisturbed(self, *, least_s: float = 0.5, most_mib: int = 8, most_ms: float = 0.0) -> Iterator[None]:
        """Check that the hostile block does not slow down the bystander, and that the node's memory stays bounded.

        The bystander's p99 is compared with the p99 before: a factor of 50 is a noisy machine, and 25 ms is acceptable.
        Above 50 ms a client is starved, whatever the p99 was before: a stall of 100 ms in each second is 5 in 100
        reads. `most_ms` is the acceptable p99 where Python has a thousand answers to give at once.
        """
        self.bystander.has_every_answer()
        before_ms = p99(self.bystander.late_ms(300))
        Path(f"/proc/{self.node.process.pid}/clear_refs").write_text("5", encoding="ascii")  # This resets VmHWM.
        memory_kib = self.memory_kib()
        yield
        late_ms = self.bystander.late_ms(1000 * least_s)
        if p99(late_ms) > max(most_ms, min(50.0, max(25.0, 50 * before_ms))):
            raise StarvedError(before_ms, p99(late_ms), max(late_ms))
        assert self.memory_kib() - memory_kib < 1024 * most_mib
        self.check_log()

    def troubles(self) -> list[tuple[str, int]]:
        """Return the reason and count of each line about hostile peers in the log."""
        lines = [line for line in self.node.said().splitlines() if "connection_trouble" in line]
        fields = [dict(re.findall(r"(\w+)=(\w+)", line)) for line in lines]
        return [(line["reason"], int(line["count"])) for line in fields]

    def check_log(self) -> None:
        """Check that the log has at most one line a minute for each reason, and no errors."""
        minutes = 1 + (time.monotonic() - self.began_s) / 60
        said = self.node.said()
        lines = Counter(reason for reason, _ in self.troubles())
        assert max(lines.values(), default=0) <= minutes, said
        assert not re.search("error|Traceback|critical", said.replace("error=None", "")), said

    def close(self) -> None:
        """Close both; check that the bystander has had every answer."""
        self.bystander.has_every_answer()
        self.bystander.close()
        assert self.node.stop() == 0


@contextlib.contextmanager
def attacked(place: Path, *options: str, changed: str = "") -> Iterator[Victim]:
    """Start a node that serves RECORDS, and its bystander."""
    place /= str(len(list(place.iterdir())))  # `patient` may retry a test.
    version = place / "source" / "geo" / "1"
    version.mkdir(parents=True)
    (version / "part-0").write_bytes(b"".join(b"%s\t%s\n" % record for record in RECORDS.items()))
    assert pumps.REPORT_PERIOD_S == 60  # `check_log` relies on this period.
    with NodeProcess(place, "--refresh-period", "off", *options, source=place / "source", changed=changed) as node:
        node.ready()
        wait_for(node.address, "geo", "1")
        bystander = Bystander(node)
        try:
            victim = Victim(node, bystander)
            yield victim
            victim.close()
        finally:
            bystander.process.kill()
            bystander.close()


def info(peer: socket.socket) -> dict[str, dict[str, int]]:
    peer.sendall(rpc.request(1, "info", []))
    ((_, _, error, result),) = answers(peer, 1)
    assert error is None
    return result


def connections(peer: socket.socket) -> list[int]:
    return [pump["connections"] for pump in info(peer)["pumps"]]


def answers(peer: socket.socket, count: int) -> list[list[object]]:
    unpacker = msgpack.Unpacker(max_buffer_size=1 << 28, unicode_errors="surrogateescape")
    found: list[list[object]] = []
    while len(found) < count:
        data = peer.recv(1 << 20)
        assert data, (found[-1:], "the node ended the connection")
        unpacker.feed(data)
        found += unpacker
    assert len(found) == count
    return found


def bytes_until_end(peer: socket.socket) -> bytes:
    """Return all bytes until the node ends the connection."""
    received = bytearray()
    with contextlib.suppress(ConnectionResetError):  # The test may have sent more than the node has read.
        while data := peer.recv(1 << 20):
            received += data
    return bytes(received)


def until_end(peer: socket.socket) -> list[list[object]]:
    """Return all answers until the node ends the connection."""
    unpacker = msgpack.Unpacker(max_buffer_size=1 << 28, unicode_errors="surrogateescape")
    received = bytes_until_end(peer)
    unpacker.feed(received)
    found = list(unpacker)
    assert unpacker.tell() == len(received)
    return found


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def check_typed(found: list[list[object]]) -> None:
    """Check that each answer is a result or an error that a client may cause."""
    for answer in found:
        kind, msgid, error, result = answer
        assert kind == 1
        assert 0 <= msgid < 2**32
        if error is not None:
            code, message, details = error
            assert code in TYPED, answer
            assert isinstance(message, str)
            assert len(message) < 500
            assert isinstance(details, dict)
            assert result is None
