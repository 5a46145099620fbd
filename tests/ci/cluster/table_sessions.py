"""Sessions that ask a random node each time while nodes die; their answers are judged at the end."""

from __future__ import annotations

import random
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, Self

from gossipkv.client import blocking
from gossipkv.errors import NotReady, Overloaded, TimedOut, Unavailable, Unknown, WriteLost
from tests.ci.cluster.table_nodes import until
from tests.ci.cluster.table_records import TABLE, TIMEOUT_MS
from tests.world.replication.sessions import READS, WRITES, Did, Guarantees

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from gossipkv.client.sessions import Session
    from gossipkv.client.tables import Level

SESSIONS = 8
KEYS = [f"session/{number}".encode() for number in range(30)]
WAIT_MS = 2_000
LACKS = (NotReady, WriteLost)  # The writes that a session depends on are unavailable or lost.


class Failed(NamedTuple):
    session: Hashable
    is_write: bool
    kind: type[Exception]
    began_s: float
    ended_s: float
    error: str

    @property
    def is_open(self) -> bool:
        return issubclass(self.kind, Unknown)


class Hopping:
    """Eight sessions, each in a thread of its own, until the end of the block; a new session follows a lost one.

    `levels`: levels of their writes; `by_map`: every other session asks the owners of a key; `pause_s`: the pause
    between requests in long runs, since the judge's state grows with the square of the writes.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        seed: int,
        levels: Sequence[Level] = ("one", "majority"),
        by_map: bool = False,
        pause_s: float = 0.0,
    ) -> None:
        self._pause_s = pause_s
        self._orders = [[*addresses[at:], *addresses[:at]] for at in range(len(addresses))]
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._answers: list[list[Did]] = []
        self._levels = levels
        self._by_map = by_map
        self.reads = 0  # Answered ones.
        self.writes = 0  # Answered ones.
        self.failed: list[Failed] = []
        self._acknowledged: set[bytes] = set()
        self.trouble: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(name, random.Random(f"{seed} {name}"))) for name in range(SESSIONS)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    @property
    def count(self) -> int:
        """Return the number of answers, including expected ones."""
        return len(self._answers)

    @property
    def refused(self) -> int:
        """Return how many requests were answered as not done."""
        return sum(not failed.is_open for failed in self.failed)

    def faults(self) -> list[str]:
        """Return the violations that the sessions observed."""
        return Guarantees().judge(self._answers) + self.trouble

    def unfounded(self) -> list[Failed]:
        """Return failures of sessions that saw only acknowledged writes: no death can have taken those."""
        seen: dict[Hashable, set[bytes | None]] = {}
        for answer in self._answers:
            for did in answer:
                seen.setdefault(did.session, set()).add(did.value)
        kept = self._acknowledged | {None}
        return [one for one in self.failed if one.kind not in LACKS or seen.get(one.session, set()) <= kept]

    def _run(self, name: int, chance: random.Random) -> None:
        try:
            with ExitStack() as stack:
                clients = [stack.enter_context(blocking.Client(order, timeout_ms=TIMEOUT_MS)) for order in self._orders]
                tables = [client.table(TABLE, by_map=self._by_map and name % 2 == 1) for client in clients]
                session, life = clients[0].session(), 0
                for number in range(1 << 30):
                    if self._is_over.wait(self._pause_s):
                        return
                    if number % 50 == 49:  # Another process would read the session from text.
                        session = clients[0].session(session.to_text())
                    value = f"{name}: {number}".encode()
                    try:
                        self._do((name, life), value, chance, chance.choice(tables), session)
                    except WriteLost:
                        session, life = clients[0].session(), life + 1
        except BaseException as error:
            self.trouble.append(repr(error))
            raise

    def _do(self, name: Hashable, value: bytes, chance: random.Random, table: blocking.Table, session: Session) -> None:
        key, is_write, began_s = chance.choice(KEYS), chance.random() < 0.5, time.monotonic()
        try:
            # Other sessions may read the value before the answer, so the write counts from when it is sent.
            if is_write:
                self._note([Did(name, WRITES, key, value, is_known=False)])
                table.put(key, value, level=chance.choice(self._levels), wait_ms=WAIT_MS, session=session)
                self._acknowledged.add(value)
                self._note([Did(name, READS, key, value)])  # From now on the session depends on the write.
            elif chance.random() < 0.7:
                self._note([Did(name, READS, key, table.get(key, wait_ms=WAIT_MS, session=session))])
            else:
                found = table.get_many(KEYS, wait_ms=WAIT_MS, session=session)
                self._note([Did(name, READS, one, was) for one, was in zip(KEYS, found, strict=True)])
        except (NotReady, Overloaded, TimedOut, Unavailable, Unknown, WriteLost) as error:
            self.failed.append(Failed(name, is_write, type(error), began_s, time.monotonic(), repr(error)))
            if isinstance(error, WriteLost):
                raise
        else:
            with self._lock:
                self.writes += is_write
                self.reads += not is_write

    def _note(self, answer: list[Did]) -> None:
        with self._lock:
            self._answers.append(answer)


def goes_on(hopping: Hopping, least_s: float, least: int) -> None:
    """Return after this time and this many answers from now on."""
    had = hopping.count
    time.sleep(least_s)
    until(lambda: hopping.count - had, lambda count: count >= least)
