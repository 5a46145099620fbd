"""A process of clients in a closed loop: one connection to each database at each node, one get in flight on each.

The next get follows as soon as an answer has come and was found right.  Every value says which version it is of, and
must be of the one that the node says it has answered from.  No answer may be of an older version than one that had come
before the get was sent: on the same connection, or on any (`together`), or, where each get says what was seen
(`min_version`), at any node.

It takes its task as a line of JSON on standard input and stops at the end of that; then it writes when each answer came
and how long it took, in nanoseconds of the system's monotonic clock, to a file, and what it has counted to standard
output.
"""

from __future__ import annotations

import gc
import json
import random
import selectors
import socket
import sys
from array import array
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING

import msgpack

from tests.bench.data import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.data import Record

RECEIVE_BYTES = 1 << 16
PATIENCE_S = 10.0


@dataclass(frozen=True)
class Task:
    """What a process is to ask."""

    addresses: list[tuple[str, int]]
    databases: list[str]  # One that is named twice has two connections to each node.
    keys: int
    value_bytes: int
    seed: int
    output: str
    together: bool = False  # What came over one connection must not be older than what had come over any.
    min_version: bool = False  # Each get asks for a version as new as the newest that any node has answered.


@dataclass
class Counts:
    """What it has met."""

    reads: int = 0
    failed: int = 0  # Errors, wrong values, no answer.
    not_ready: int = 0  # Told to ask again, for no such new version was known there; only with `min_version`.
    back: int = 0
    first_failure: str = ""

    def fail(self, why: str) -> None:
        """One more."""
        self.failed += 1
        self.first_failure = self.first_failure or why

    def include(self, other: Counts) -> None:
        """And what another one has met."""
        for name in ("reads", "failed", "not_ready", "back"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first_failure = self.first_failure or other.first_failure


def value_of(database: str, version: str, key: bytes, value_bytes: int) -> bytes:
    """What a version of a database has for a key."""
    part = b"%b/%b/%b " % (database.encode(), version.encode(), key)
    return (part * (value_bytes // len(part) + 1))[:value_bytes]


def contents(database: str, version: str, keys: int, value_bytes: int) -> Iterator[Record]:
    """All of a version."""
    for number in range(keys):
        key = key_of(number)
        yield key, value_of(database, version, key, value_bytes)


@dataclass
class Seen:
    """The newest version of a database that somebody has been answered from."""

    version: str = ""


class Check:
    """What one connection is told must be right, and go forward."""

    def __init__(self, database: str, value_bytes: int, counts: Counts, seen: Seen, *, min_version: bool) -> None:
        self._database = database
        self._value_bytes = value_bytes
        self._counts = counts
        self._seen = seen
        self._floor = ""  # What had been seen when the get was sent.
        self._min_version = min_version

    def request(self, key: bytes) -> bytes:
        """A get, which is sent now."""
        self._floor = self._seen.version
        options = [{"min_version": self._floor}] if self._min_version and self._floor else []
        return msgpack.packb([0, 1, "get", [self._database, key, *options]])

    def look(self, key: bytes, answer: list[object]) -> None:
        """Counts an answer to a get of this key."""
        match answer:
            case [1, 1, None, [value, str(version)]]:
                self._counts.reads += 1
                if value != value_of(self._database, version, key, self._value_bytes):
                    self._counts.fail(f"{self._database}: {key!r} of {version}: {value!r}")
                self._counts.back += version < self._floor
                self._seen.version = max(self._seen.version, version)
            case [1, 1, ["NOT_READY", *_], None] if self._min_version and self._floor:
                self._counts.not_ready += 1
            case _:
                self._counts.reads += 1
                self._counts.fail(f"{self._database}: {answer}")


class Asker:
    """One connection."""

    def __init__(self, address: tuple[str, int], check: Check, keys: int, seed: str, samples: array[int]) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._check = check
        self._keys = keys
        self._samples = samples
        self._random = random.Random(seed).random
        self._key = b""
        self._sent_ns = 0
        self._waiting = b""

    def ask(self) -> None:
        """One more get."""
        self._key = key_of(int(self._random() * self._keys))
        request = self._check.request(self._key)
        self._sent_ns = monotonic_ns()
        self.socket.sendall(request)

    def hear(self) -> bool:
        """Takes what has come; whether that was the answer.  Raises ConnectionError at the end of the connection."""
        part = self.socket.recv(RECEIVE_BYTES)
        now_ns = monotonic_ns()
        if not part:
            raise ConnectionError("the node closed the connection")
        self._waiting += part
        try:
            answer = msgpack.unpackb(self._waiting)
        except ValueError:
            return False
        self._waiting = b""
        self._samples.append(now_ns)
        self._samples.append(now_ns - self._sent_ns)
        self._check.look(self._key, answer)
        return True


def askers(task: Task, counts: Counts, samples: array[int]) -> Iterator[Asker]:
    """All connections, which share what was seen of a database where each get says it, or the task wants it."""
    shared: dict[str, Seen] = {}
    for number, (address, database) in enumerate(product(task.addresses, task.databases)):
        seen = shared.setdefault(database, Seen()) if task.min_version or task.together else Seen()
        check = Check(database, task.value_bytes, counts, seen, min_version=task.min_version)
        yield Asker(address, check, task.keys, f"{task.seed} {number}", samples)


def run(task: Task) -> Counts:
    """Asks until standard input ends."""
    counts = Counts()
    samples = array("q")
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.buffer, selectors.EVENT_READ)
        connected = list(askers(task, counts, samples))
        for asker in connected:
            selector.register(asker.socket, selectors.EVENT_READ, asker)
            asker.ask()
        waiting = len(connected)
        going_on = True
        while waiting:
            ready = selector.select(PATIENCE_S)
            if not ready:
                counts.fail(f"{waiting} gets without an answer within {PATIENCE_S:.0f} s")
                counts.failed += waiting - 1
                break
            for entry, _ in ready:
                if entry.data is None:
                    selector.unregister(sys.stdin.buffer)
                    going_on = False
                    continue
                try:
                    answered = entry.data.hear()
                except OSError as error:
                    counts.fail(str(error))
                    selector.unregister(entry.fileobj)
                    waiting -= 1
                    continue
                if not answered:
                    continue
                if going_on:
                    entry.data.ask()
                else:
                    waiting -= 1
    with Path(task.output).open("wb") as output:
        samples.tofile(output)
    return counts


def main() -> int:
    """Does its task."""
    gc.disable()
    task = Task(**json.loads(sys.stdin.buffer.raw.readline()))
    print(json.dumps(asdict(run(task))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
