"""etcd beside a register: three members on this machine, whose leader is asked to compare and swap.

It is asked over gRPC by one Python process with grpcio, which packs and unpacks nothing but the few fields that are
needed: the JSON gateway would cost the server more, and a client library would cost the client more.
"""

from __future__ import annotations

import queue
import shutil
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic, perf_counter_ns, sleep
from typing import TYPE_CHECKING, final

try:
    import grpc
except ImportError:
    grpc = None

from tests.bench.measurement import WrongAnswerError
from tests.bench.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

MEMBERS = 3
PATIENCE_S = 60.0
SETTINGS = (
    "etcd {version}: three members, its defaults, data on the same disk; transactions (compare `mod_revision`, put) "
    "asked of its leader over gRPC by one Python process with grpcio and hand-packed messages; each revision checked"
)
VALUE_BYTES = 118
EQUAL_TO_MOD_REVISION = 2


def missing() -> str | None:
    """What must be installed before it can take part."""
    needed = [] if shutil.which("etcd") else ["apt-get install etcd-server"]
    needed += [] if grpc is not None else ["pip install grpcio"]
    return " and ".join(needed) or None


def settings() -> str:
    """How it is set up."""
    said = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True).stdout
    return SETTINGS.format(version=said.split()[2])


@contextmanager
def running(directory: Path) -> Iterator[Etcd]:
    """A cluster, asked at its leader; nothing of it runs afterwards."""
    ports = [free_port() for _ in range(2 * MEMBERS)]
    clients, peers = ([f"http://127.0.0.1:{port}" for port in half] for half in (ports[:MEMBERS], ports[MEMBERS:]))
    cluster = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
    with ExitStack() as stack:
        processes: list[int] = []
        for number, (client, peer) in enumerate(zip(clients, peers, strict=True)):
            place = directory / f"m{number}"
            place.mkdir(parents=True, mode=0o700)
            log = stack.enter_context((directory / f"m{number}.log").open("wb"))
            command = ["etcd", "--name", f"m{number}", "--data-dir", str(place), "--initial-cluster", cluster]
            command += ["--listen-client-urls", client, "--advertise-client-urls", client]
            command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            member = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(member.wait)
            stack.callback(member.kill)
            processes.append(member.pid)
        etcd = Etcd(_leader([f"127.0.0.1:{port}" for port in ports[:MEMBERS]]), processes)
        stack.callback(etcd.close)
        yield etcd


@final
class Etcd:
    """A connection to a member."""

    def __init__(self, address: str, processes: Sequence[int] = ()) -> None:
        """`processes`: all members."""
        self.processes = processes
        self._channel = grpc.insecure_channel(address)
        self._transact = self._channel.unary_unary("/etcdserverpb.KV/Txn")
        self._range = self._channel.unary_unary("/etcdserverpb.KV/Range")
        self._status = self._channel.unary_unary("/etcdserverpb.Maintenance/Status")
        self.revisions: dict[bytes, int] = {}

    def is_leader(self) -> bool:
        """Whether it says that it is."""
        told = _fields(self._status(b"", timeout=2))
        return _fields(told[1][0]).get(2) == told.get(4, [0])

    def swap(self, key: bytes, value: bytes) -> None:
        """Put a value, if nobody did since this client has, and wait.  Raises WrongAnswerError: somebody did."""
        self._take(key, self._transact(_swap(key, self.revisions.get(key, 0), value), timeout=PATIENCE_S))

    def swap_each(self, keys: list[bytes], count: int, value: Callable[[int], bytes]) -> dict[bytes, bytes]:
        """So many in all, with one in flight for each key; what each key has then."""
        done: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        flying: dict[bytes, tuple[object, bytes]] = {}
        last: dict[bytes, bytes] = {}
        sent = 0

        def send(key: bytes) -> None:
            nonlocal sent
            data = value(sent)
            sent += 1
            call = self._transact.future(_swap(key, self.revisions.get(key, 0), data), timeout=PATIENCE_S)
            flying[key] = call, data
            call.add_done_callback(lambda _: done.put(key))

        for key in keys:
            send(key)
        for _ in range(count):
            key = done.get()
            call, data = flying.pop(key)
            self._take(key, call.result())
            last[key] = data
            if sent < count:
                send(key)
        return last

    def contend(self, key: bytes, writers: int, time_s: float) -> tuple[int, float]:
        """Count in a key by writers that each swap until they have, what they read; how often, and the longest wait."""
        done: queue.SimpleQueue[int] = queue.SimpleQueue()
        began_ns = [perf_counter_ns()] * writers
        known = [(0, 0)] * writers  # Revision and count.
        calls: list[object] = [None] * writers
        end_s, count, longest_ns = monotonic() + time_s, 0, 0

        def send(writer: int) -> None:
            revision, value = known[writer]
            data = b"%d" % (value + 1)
            calls[writer] = self._transact.future(_swap(key, revision, data.rjust(VALUE_BYTES)), timeout=PATIENCE_S)
            calls[writer].add_done_callback(lambda _: done.put(writer))

        for writer in range(writers):
            send(writer)
        flying = writers
        while flying:
            writer = done.get()
            told = _fields(calls[writer].result())
            if told.get(2):
                count += 1
                now_ns = perf_counter_ns()
                longest_ns = max(longest_ns, now_ns - began_ns[writer])
                began_ns[writer] = now_ns
                known[writer] = _revision_of(told), known[writer][1] + 1
            else:
                pair = _fields(_fields(_fields(told[3][0])[1][0])[2][0])
                known[writer] = pair[3][0], int(pair[5][0])
            if monotonic() < end_s:
                send(writer)
            else:
                flying -= 1
        if int(self.get(key)) != count:
            raise WrongAnswerError(f"etcd has {self.get(key)!r} after {count} changes")
        return count, longest_ns / 1e9

    def get(self, key: bytes) -> bytes:
        """The value of a key."""
        told = _fields(self._range(_field(1, key), timeout=PATIENCE_S))
        return _fields(told[2][0])[5][0]

    def _take(self, key: bytes, answer: bytes) -> None:
        told = _fields(answer)
        revision = _revision_of(told)
        if not told.get(2) or revision <= self.revisions.get(key, 0):
            raise WrongAnswerError(f"etcd did not swap {key!r}, which nobody else writes")
        self.revisions[key] = revision

    def close(self) -> None:
        """Hang up."""
        self._channel.close()


def _leader(addresses: list[str]) -> str:
    """Who leads, once somebody does."""
    deadline = monotonic() + PATIENCE_S
    while monotonic() < deadline:
        for address in addresses:
            etcd = Etcd(address)
            with suppress(grpc.RpcError):
                if etcd.is_leader():
                    return address
            etcd.close()
        sleep(0.1)
    raise RuntimeError("no member of etcd leads")


# Protocol Buffers, as far as these messages go.


def _swap(key: bytes, revision: int, value: bytes) -> bytes:
    compare = _number(2, EQUAL_TO_MOD_REVISION) + _field(3, key) + _number(6, revision)
    put = _field(2, _field(1, key) + _field(2, value))
    look = _field(1, _field(1, key))
    return _field(1, compare) + _field(2, put) + _field(3, look)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(tag: int, value: int) -> bytes:
    return _varint(tag << 3) + _varint(value)


def _field(tag: int, value: bytes) -> bytes:
    return _varint(tag << 3 | 2) + _varint(len(value)) + value


def _fields(data: bytes) -> dict[int, list[int | bytes]]:
    found: dict[int, list[int | bytes]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        value: int | bytes = varint()
        if tag & 7 == 2:
            at += value
            value = data[at - value : at]
        found.setdefault(tag >> 3, []).append(value)
    return found


def _revision_of(told: dict[int, list[int | bytes]]) -> int:
    return _fields(told[1][0])[3][0]
