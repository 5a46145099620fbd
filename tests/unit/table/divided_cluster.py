"""Whole nodes in virtual time whose ranges are split, with sessions and scans at all nodes.

One session writes each key, so the allowed states of a key, and thus the results of a scan, are always known.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import trio

from gossipkv.errors import GossipKVError, NotReady, Overloaded, WriteLost
from gossipkv.register.metadata.known import ENTRY, unstamped
from gossipkv.register.metadata.partitions import decode_partition
from tests.world.replication.scans import Asked, faults_of
from tests.world.replication.sessions import READS, WRITES, Did, Guarantees

SESSIONS = 5
KEYS = [b"k%02d" % number for number in range(48)]
WAIT_MS = 3000
PACE_S = 0.15
LIMITS = (2, 7, 50)
HELD_S = (0.0, 0.0, 0.3, 3.0)  # The time that a cursor is kept before the next page.
REST_S = 300  # The last writes are split last; then the cluster must be quiet for a minute.
REFUSED = (NotReady, Overloaded)  # Certainly not applied.


class Stands(NamedTuple):
    """The known state of a key."""

    writes: int = 0  # The number of writes begun.
    under_way: bool = False
    last: bytes | None = None  # The acknowledged value; None: no record.
    open: frozenset = frozenset()  # Values of writes with unknown outcome, which may still be applied later.

    @property
    def may_be(self):
        return self.open | {self.last}


class Traffic:
    """Sessions that put, delete and read their own keys at any node, and scans of all keys."""

    def __init__(self, cluster):
        self.machines = [one for one in cluster.machines if one.runs]
        self.stands = dict.fromkeys(KEYS, Stands())
        self.failed, self.done = Counter(), Counter()
        self.faults = []
        self.history = []
        self._cluster = cluster
        self._chance = cluster.streams["traffic"]
        self._tokens = [b""] * SESSIONS
        self._names = [*range(SESSIONS)]  # A session that has lost its history continues under a new name.
        self._values = 0

    @property
    def token(self):
        return b"".join(self._tokens)

    async def run(self):
        async with trio.open_nursery() as nursery:
            for number in range(SESSIONS):
                nursery.start_soon(self._session, number)
            for reverse in (False, True):
                nursery.start_soon(self._scans, reverse)

    def judge(self):
        """Return the observations that break a guarantee."""
        return self.faults + Guarantees().judge([[did] for did in self.history])

    async def _ask(self, what, *params):
        """Send a request to a running node and return the answer.  Raises GossipKVError."""
        machine = self._chance.choice([one for one in self.machines if one.runs])
        life = machine.lives
        try:
            answer = await self._cluster.ask(machine, what, "t", *params)
        except GossipKVError as error:
            if machine.runs and machine.lives == life:  # If the node dies, the session asks another node.
                self.failed[what, type(error).__name__, f"{machine.name}: {error}"] += 1
            raise
        self.done[what] += 1
        return answer

    async def _session(self, number):
        own = KEYS[number::SESSIONS]
        while True:
            drawn = self._chance.random()
            try:
                if drawn < 0.5:
                    await self._read(number, self._chance.choice(KEYS))
                else:
                    await self._write(number, self._chance.choice(own), drawn < 0.65)
            except WriteLost:
                self._tokens[number], self._names[number] = b"", self._names[number] + SESSIONS
            except GossipKVError:
                pass
            await trio.sleep(PACE_S)

    async def _read(self, number, key):
        value, self._tokens[number] = await self._ask("get", key, self._options(number))
        self.history.append(Did(self._names[number], READS, key, value))

    async def _write(self, number, key, deletes):
        self._values += 1
        value = None if deletes else b"%d" % self._values
        had, name = self.stands[key], self._names[number]
        begun = self.stands[key] = had._replace(writes=had.writes + 1, under_way=True, open=had.open | {value})
        self.history.append(Did(name, WRITES, key, value, is_known=False))
        params = [key] if deletes else [key, value]
        try:
            token = await self._ask("delete" if deletes else "put", *params, self._options(number, level="majority"))
        except GossipKVError as error:
            self.stands[key] = begun._replace(
                under_way=False, open=had.open if isinstance(error, REFUSED) else begun.open
            )
            raise
        self._tokens[number] = token
        self.stands[key] = begun._replace(under_way=False, last=value, open=had.open)
        self.history.append(Did(name, WRITES if deletes else READS, key, value))

    def _options(self, number, **more):
        return {"token": self._tokens[number], "wait_ms": WAIT_MS, "timeout_ms": WAIT_MS, **more}

    async def _scans(self, reverse):
        while True:
            bounds = sorted(self._chance.sample(KEYS, 2)) if self._chance.random() < 0.3 else (b"", None)
            await self.scan(Asked(*bounds, reverse), self._chance.choice(LIMITS), self._chance.choice(HELD_S))

    async def scan(self, asked, limit=7, held_s=0.0):
        """Scan with each page from another node; a failed page is asked for again elsewhere."""
        before, rows, cursor = {**self.stands}, [], None
        options = {"start": asked.start, "reverse": asked.reverse, "limit": limit, "wait_ms": WAIT_MS}
        options |= {"token": self.token} | ({} if asked.end is None else {"end": asked.end})
        while True:
            try:
                page, cursor, _ = await self._ask("scan", options | ({} if cursor is None else {"cursor": cursor}))
            except GossipKVError:
                await trio.sleep(PACE_S)
                continue
            rows += page
            if cursor is None:
                break
            await trio.sleep(held_s)
        self._judge_scan(asked, before, rows)

    def _judge_scan(self, asked, before, rows):
        still = {key: one.may_be for key, one in before.items() if one is self.stands[key] and not one.under_way}
        there = [key for key, may_be in still.items() if None not in may_be]
        gone = [key for key, may_be in still.items() if may_be == {None}]
        self.faults += faults_of([key for key, _ in rows], asked, there, gone)
        self.faults += [f"from nowhere: {row}" for row in rows if row[0] in still and row[1] not in still[row[0]]]


async def ranges(cluster, machine):
    """Return the ranges of a table by first key, from the map of a node."""
    told = await cluster.ask(machine, "partition_map", "t")
    entries, start = [], b""
    while start is not None:
        _, _, page, start = await cluster.ask(machine, "map_page", bytes.fromhex(told["table"]), start)
        entries += page
    return {
        key[len(ENTRY) :]: decode_partition(unstamped(record)[1]) for key, record in entries if key.startswith(ENTRY)
    }


async def rest(cluster, machine):
    """Wait until the table is at rest and healthy for a minute; return its ranges."""
    rests_s, before = trio.current_time(), {}

    async def holds():
        """Return True after a minute in which all ranges are complete and the table is healthy."""
        nonlocal rests_s, before
        found, told = await ranges(cluster, machine), (await cluster.ask(machine, "status", {"database": "t"}))["t"]
        is_well = not told["unwell"] and not told["moving"] and told["aside"] is None
        is_whole = not any(part.former or {*map(_state, part.assignments)} != {"AVAILABLE"} for part in found.values())
        if found != before or not is_well or not is_whole:
            rests_s, before = trio.current_time(), found
        return trio.current_time() - rests_s > 60

    await cluster.until(holds, within_s=REST_S, every_s=2)
    return before


def _state(assignment):
    return assignment.state.name


async def shown_by(cluster, traffic, machines):
    """Check that these nodes show all acknowledged writes and that every observation is allowed."""
    for machine in machines:
        traffic.machines = [machine]
        for key, stands in traffic.stands.items():
            value, _ = await cluster.ask(machine, "get", "t", key, {"token": traffic.token, "wait_ms": WAIT_MS})
            assert value in stands.may_be, (machine.name, key, value, stands)
        for reverse in (False, True):
            await traffic.scan(Asked(reverse=reverse))
    assert traffic.judge() == []


async def everywhere(cluster, traffic, machines):
    """Check that these nodes show all writes, and that the replicas of each range are equal."""
    await shown_by(cluster, traffic, machines)
    start = b""
    while start is not None:
        told = await cluster.ask(machines[0], "verify_table", "t", {"start": start})
        assert told["verdict"] == "equal", told
        start = told["next"]
