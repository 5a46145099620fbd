"""Clients of a table under chaos, with and without sessions, each request at a random node; all answers are judged.

The keys change every few seconds, so that a late write over an acknowledged one stays visible.
"""

from __future__ import annotations

import contextlib
import random
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from gossipkv.client import blocking
from gossipkv.errors import Conflict, NotReady, Overloaded, TimedOut, Unavailable, Unknown
from tests.ci.cluster.table_moves import number_of, settled
from tests.ci.cluster.table_nodes import until
from tests.ci.cluster.table_records import DONE, OPEN, OPTIONS, REFUSED, TABLE, TIMEOUT_MS, Read, Write, judge
from tests.world.replication.sessions import READS, WRITES, Did, Guarantees

if TYPE_CHECKING:
    from gossipkv.client.sessions import Session
    from tests.nightly.soak.test_chaos import Chaos

KEYS: Final = 20
ROUND_S: Final = 20.0  # Each round has keys and sessions of its own.
PAUSE_S: Final = 0.02
TIMES_MS: Final = (500, 2_000, 8_000)
LATE_S: Final = 3.0  # A deadline between nodes allows for the duration of the answer that carried a clock.
LATE: Final = "late"  # The end of a write of unknown outcome, which is applied by now or never.


class TableClients:
    """Requests to the table and their answers, amid chaos."""

    def __init__(self, chaos: Chaos) -> None:
        self._chaos, self._addresses = chaos, chaos.addresses
        self._writes: list[Write] = []
        self._reads: list[Read] = []
        self._answers: dict[str, list[list[Did]]] = {}  # By round.
        self._left: set[bytes] = set()  # Keys that only one client still writes.
        self.trouble: list[str] = []
        with blocking.connect(self._addresses[0], timeout_ms=TIMEOUT_MS) as client:
            until(lambda: self._has_table(client), bool)
            told = client.call("partition_map", TABLE)["partitions"]
        self._hosts = {at: [one["node"] for one in part["assignments"]] for at, part in enumerate(told)}
        for address in self._addresses:
            with blocking.connect(address, timeout_ms=TIMEOUT_MS) as client:
                until(lambda client=client: client.table(TABLE).put(b"first", b"", level="all"), lambda _: True)

    @staticmethod
    def _has_table(client: blocking.Client) -> bool:
        with contextlib.suppress(Conflict):  # The table was made by an earlier request without an answer.
            client.call("create_table", TABLE, OPTIONS)
        return True

    def ask(self, name: int) -> None:
        """Write and read until the chaos ends."""
        chance, session, of_round = random.Random(f"table {name}"), None, 0
        with ExitStack() as stack:
            clients = [stack.enter_context(blocking.Client([at], timeout_ms=TIMES_MS[-1])) for at in self._addresses]
            while self._chaos.may_go_on():
                time.sleep(PAUSE_S)
                if of_round != int(time.monotonic() / ROUND_S):
                    session, of_round = clients[0].session(), int(time.monotonic() / ROUND_S)
                at, own = chance.randrange(len(clients)), chance.choice((session, None))
                self._ask(at, clients[at].table(TABLE), own, f"{of_round} {name}", chance)

    def _ask(
        self, at: int, table: blocking.Table, own: Session | None, name: str, chance: random.Random, *, again: str = ""
    ) -> None:
        of_round, began_s, end, why = name.partition(" ")[0], time.monotonic(), DONE, ""
        key, value = (again or f"{of_round}/{chance.randrange(KEYS)}").encode(), f"{name}: {chance.random()}".encode()
        answers = self._answers.setdefault(of_round, [])
        is_write = bool(again) or (chance.random() < 0.5 and key not in self._left)
        who, timeout_ms = name if own else value, chance.choice(TIMES_MS)
        try:
            if is_write:
                answers.append([Did(who, WRITES, key, value, is_known=False)])
                level = chance.choice(("one", "majority"))
                table.put(key, value, level=level, timeout_ms=timeout_ms, wait_ms=timeout_ms, session=own)
            else:
                value = table.get(key, wait_ms=TIMES_MS[1], session=own)
            answers.append([Did(who, READS, key, value)])
        except (NotReady, Overloaded, TimedOut, Unavailable, Unknown) as error:
            end, why = REFUSED, repr(error)
            if isinstance(error, Unknown):
                end = LATE if self._chaos.knows_clocks(at) else OPEN
        ended_s = time.monotonic() + (LATE_S if end == LATE else 0.0)
        if is_write:
            self._writes.append(Write(key, value, end, began_s, ended_s, why))
            if end == LATE:  # The next acknowledged write is the last of this key, and the late one must not undo it.
                self._left.add(key)
                time.sleep(LATE_S)
                self._ask(at, table, own, name, chance, again=key.decode())
        else:
            self._reads.append(Read(key, None if why else value, began_s, ended_s, why))
            if why:
                self._explain(at, self._reads[-1], is_of_session=own is not None)

    def _explain(self, at: int, read: Read, *, is_of_session: bool) -> None:
        """Report a read that failed although a host was well or, in a session, all hosts were."""
        hosts = self._hosts[number_of(read.key, len(self._hosts), ())]
        well = {f"n{one}" for one in range(len(self._addresses)) if self._chaos.is_well(one, read.began_s)}
        if f"n{at}" in well and (len(well) == len(self._addresses) if is_of_session else well & {*hosts}):
            self.trouble.append(f"n{at}: {read}, on {hosts}; {well} were well")

    def judge(self) -> tuple[list[str], str]:
        """Return the violations in all answers and the final content, and the counts."""
        addresses = {f"n{at}": address for at, address in enumerate(self._addresses)}
        ends = settled(addresses, self._hosts, sorted({write.key for write in self._writes}))
        judged = judge(self._writes, self._reads, ends)
        faults = [fault for answers in self._answers.values() for fault in Guarantees().judge(answers)]
        late = sum(write.end == LATE for write in self._writes)
        counts = f"{judged.writes}, {late} late or never, {judged.reads} reads, {len(judged.failed)} failed"
        return self.trouble + judged.faults + faults, counts
