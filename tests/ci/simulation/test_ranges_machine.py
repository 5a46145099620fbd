"""A range table against a dictionary: split, join, leave, force-join, smear and crash amid writes, reads and scans.

Whole nodes run in virtual time, for a twentieth of SIMULATED_SEEDS seeds. One client writes and reads in one session,
each time at another node. For each key the client keeps the possible values: one value, or several after a write of
unknown outcome.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest
import trio

from gossipkv.errors import BadRequest, Conflict, GossipKVError, Unknown, WriteLost
from tests.unit.table.rpc.test_node_admin import come, made
from tests.world.nodes.phases import shown
from tests.world.nodes.whole_cluster import USUAL, simulate, simulated

NODES, REPLICAS, STEPS = 6, 3, 60
KEYS = [b"%02d" % number for number in range(30)]
BOUNDS = [second.to_bytes(4, "big") for second in (30, 60)]
SERIES = {"kind": "range", "replication": 2, "time_key": [0, 4, "s"], "bounds": BOUNDS}
SEEDS = range(max(5, int(os.environ.get("SIMULATED_SEEDS", "0")) // 20))
PATIENCE_S = 120.0
SMEARED_S = 150.0  # By this time every accepted put has reached its range.


class Machine:
    """A client's actions and its expectations."""

    def __init__(self, cluster):
        self.cluster, self.chance = cluster, cluster.streams["client"]
        self.names = {f"n{number}": machine for number, machine in enumerate(cluster.machines, 1)}
        self.may_stand = {key: {None} for key in KEYS}
        self.token = b""
        self.written = 0
        self.accepted = {}
        self.counts = Counter()

    @property
    def living(self):
        return [name for name, machine in self.names.items() if machine.runs]

    async def ask(self, method, *params, of=None, within_s=20.0):
        of = of or self.chance.choice(self.living)
        return await self.cluster.ask(self.names[of], method, *params, timeout_s=within_s)

    async def until(self, ask, within_s=PATIENCE_S):
        give_up = trio.current_time() + within_s
        while True:
            try:
                return await ask()
            except WriteLost:
                raise
            except GossipKVError:
                if trio.current_time() > give_up:
                    raise
                await trio.sleep(0.5)

    def options(self, **more):
        """Return the options of a read or a write in the session."""
        return {"token": self.token, "wait_ms": 5000, "timeout_ms": 10_000, **more}

    # -- actions -----------------------------------------------------------------------------------------------------

    async def put(self):
        key = self.chance.choice(KEYS)
        self.written += 1
        value = None if self.chance.random() < 0.2 else b"%d" % self.written
        call = ("delete", "t", key) if value is None else ("put", "t", key, value)
        try:
            self.token = await self.ask(*call, self.options())
        except Unknown:
            self.may_stand[key].add(value)
        except WriteLost:
            self.token = b""
        except GossipKVError as error:
            self.counts[error.code] += 1
        else:
            self.may_stand[key] = {value}

    async def get(self):
        """Read a key; the value must be possible, and becomes the only possible one."""
        key = self.chance.choice(KEYS)
        try:
            value, self.token = await self.ask("get", "t", key, self.options())
        except WriteLost:
            self.token = b""
        except GossipKVError as error:
            self.counts[error.code] += 1
        else:
            self.sees(key, value)

    def sees(self, key, value):
        self.counts["seen"] += 1
        assert value in self.may_stand[key], (key, value, self.may_stand[key])
        if len(self.may_stand[key]) > 1 and value is not None:
            self.may_stand[key] = {value, *(self.may_stand[key] - {value, None})}

    async def scan(self):
        """Scan all records in either direction, page by page, with another action between two pages."""
        is_reverse, found, cursor = self.chance.random() < 0.5, [], None
        before = {key: set(some) for key, some in self.may_stand.items()}
        while True:
            more = {} if cursor is None else {"cursor": cursor}
            try:
                rows, cursor, self.token = await self.ask(
                    "scan", "t", self.options(limit=7, reverse=is_reverse, **more)
                )
            except GossipKVError as error:
                self.counts[error.code] += 1
                self.token = b"" if isinstance(error, WriteLost) else self.token
                return
            found += [(key, value) for key, value in rows]
            if cursor is None:
                break
            await self.chance.choice((self.put, self.split, self.join))()
        keys = [key for key, _ in found]
        assert keys == sorted({*keys}, reverse=is_reverse), keys
        values = dict(found)
        for key in KEYS:  # A value that was certain before and after was certain throughout.
            if before[key] == self.may_stand[key] and len(before[key]) == 1:
                assert values.get(key) in before[key], (key, values.get(key), before[key])
        self.counts["scanned"] += 1

    async def change(self, method, *params):
        """Run a command of an operator, which may be refused."""
        try:
            await self.ask(method, "t", *params, {"timeout_ms": 15_000}, within_s=30.0)
        except (BadRequest, Conflict):
            self.counts[f"{method} refused"] += 1
        except GossipKVError as error:
            self.counts[f"{method} {error.code}"] += 1
        else:
            self.counts[method] += 1

    async def split(self):
        await self.change("split", self.chance.choice(KEYS) + b"m")

    async def join(self):
        await self.change("join", self.chance.choice(KEYS), self.chance.choice([*self.names]))

    async def leave(self):
        await self.change("leave", self.chance.choice(KEYS), self.chance.choice([*self.names]))

    async def crash(self):
        """Kill a node, or restart the node that is down: at most one is down at a time."""
        down = [name for name in self.names if name not in self.living]
        if down:
            machine = self.names[down[0]]
            machine.config = replace(machine.config, join=(self.names[self.living[0]].address,))
            await machine.start()
        else:
            self.names[self.chance.choice(self.living)].kill()
        self.counts["crashes"] += 1

    async def smear(self):
        """Put a reading, which a node may accept and buffer."""
        self.written += 1
        key = self.chance.randrange(90).to_bytes(4, "big") + b"%d" % self.written
        with trio.move_on_after(30):
            try:
                told = await self.ask("put", "s", key, b"%d" % self.written, {"timeout_ms": 10_000})
            except GossipKVError as error:
                self.counts[f"smear {error.code}"] += 1
            else:
                self.accepted[key] = b"%d" % self.written
                self.counts["smeared" if isinstance(told, dict) else "not smeared"] += 1

    async def step(self):
        kinds = [self.put] * 8 + [self.get] * 6 + [self.scan, self.split, self.join, self.leave, self.crash, self.smear]
        await self.chance.choice(kinds)()
        await trio.sleep(self.chance.choice((0.0, 0.1, 2.0)))

    # -- the end -----------------------------------------------------------------------------------------------------

    async def heal(self):
        for name in [name for name in self.names if name not in self.living]:
            await come(self.cluster, self.names[name])
        for machine in self.names.values():
            await shown(self.cluster, machine, "alive", 60)

    async def force(self):
        """Lose all hosts of a range with their disks, and re-create the range, whose keys are unknown from then on."""
        rows = await self.until(lambda: self.ask("partition_map", "t", of="n1"))
        parts = rows["partitions"]
        at = self.chance.randrange(len(parts))
        start, end = parts[at]["start"], parts[at + 1]["start"] if at + 1 < len(parts) else None
        hosts = {one["node"] for one in parts[at]["assignments"]}
        if len(hosts) > 2 or "n1" in hosts:  # The acceptors of the table's register must stay a majority.
            return False
        for name in hosts:
            self.names[name].kill()
        for name in hosts:
            await shown(self.cluster, self.names[name], "dead", 60)
        node = self.chance.choice(self.living)
        told = await self.until(lambda: self.ask("force_join", "t", start, node, {"timeout_ms": 15_000}, of=node))
        assert told["node"] == node
        for key in KEYS:
            if start <= key and (end is None or key < end):
                self.may_stand[key] = {None, *self.may_stand[key], *(b"%d" % n for n in range(self.written + 1))}
        self.counts["force"] += 1
        return True

    async def check(self):
        """Check that each node has every acknowledged and every accepted record exactly once."""
        for key in KEYS:
            value, _ = await self.until(lambda key=key: self.ask("get", "t", key, {"timeout_ms": 10_000}))
            self.sees(key, value)
        for name in self.living:
            rows, cursor, _ = await self.until(
                lambda name=name: self.ask("scan", "t", {"limit": 100, "timeout_ms": 10_000}, of=name)
            )
            assert cursor is None
            assert [key for key, _ in rows] == sorted({key for key, _ in rows})
            for key, value in rows:
                assert value in self.may_stand[key], (name, key, value)
        for key, value in self.accepted.items():
            found, _ = await self.until(lambda key=key: self.ask("get", "s", key, {"timeout_ms": 10_000}))
            assert found == value, (key, found)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_range_table_is_a_dictionary(seed):
    """Operators change ranges and nodes crash, and the table always behaves as the dictionary."""
    counts = Counter()

    async def scenario(cluster):
        await made(cluster, {"kind": "range", "replication": REPLICAS})
        machine = Machine(cluster)
        await machine.until(lambda: machine.ask("create_table", "s", SERIES, of="n1", within_s=60))
        for _ in range(STEPS):
            await machine.step()
        await machine.heal()
        await trio.sleep(SMEARED_S)
        await machine.check()
        counts.update(machine.counts)

    simulate(scenario, seed, machines=NODES, config=replace(USUAL, max_clock_skew=86_400_000))
    assert counts["seen"] >= len(KEYS)
    assert counts["split"] + counts["join"] + counts["leave"] + counts["crashes"]


@simulated(NODES)
async def test_a_range_that_begins_anew_is_one(cluster):
    """The re-created range takes writes, and other ranges go on."""
    await made(cluster, {"kind": "range", "replication": 2, "bounds": [b"05", b"10", b"15", b"20", b"25"]})
    machine = Machine(cluster)
    for _ in range(STEPS // 2):
        await machine.chance.choice((machine.put, machine.get))()
    with trio.fail_after(600):
        while not await machine.force():
            pass
    machine.token = b""
    for _ in range(STEPS):
        await machine.chance.choice((machine.put, machine.get, machine.scan))()
    await machine.heal()
    await machine.check()
    assert machine.counts["force"] == 1
