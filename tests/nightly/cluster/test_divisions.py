"""Ranges are split while nodes are killed, stopped, lost with their disks, added and removed at random.

DIVISIONS_SECONDS sets the duration; a night has ten minutes. Clients of all nodes write, read and scan meanwhile. The
table is placed on five of six nodes. One node at a time is away, and a disk is lost only when all ranges are whole, so
no acknowledged write may be lost.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import Conflict, GossipKVError
from gossipkv.launcher import Cluster
from tests.ci.cluster import scanning
from tests.ci.cluster.table_moves import (
    Death,
    all_know,
    check,
    is_quiet,
    lay,
    shares,
    starts,
    still_there,
    traffic_at,
)
from tests.ci.cluster.table_nodes import Nodes, until
from tests.ci.cluster.table_records import TABLE
from tests.ci.cluster.test_divisions import gossipkv, is_settled
from tests.ci.cluster.views import LOGGED

if TYPE_CHECKING:
    from collections.abc import Collection

SECONDS = float(os.environ.get("DIVISIONS_SECONDS", "30"))
SEED = int(os.environ.get("DIVISIONS_SEED", "1"))

pytestmark = pytest.mark.timeout(SECONDS + 900)

N = 6
ALL = range(1, N + 1)
ROWS = 2000
SETTINGS = {
    **LOGGED,
    "refresh_period": "off",
    "table_segment": "4MiB",
    "move_stall": "5s",
    "split_rows": str(ROWS),
}
HELD_S = (0.0, 0.05, 1.0)
SETTLE_S = 300.0
COMMAND_MS = 3_000  # A request that waits for a stopped node is answered before clients of the asked node give up.
PAUSE_S = 0.05
LEAST = 50  # Reads and writes between two faults.


class Days:
    """Faults of the nodes, and operators' commands during them."""

    def __init__(self, nodes: Nodes, keys: Collection[bytes], chance: random.Random) -> None:
        self._nodes = nodes
        self._keys = [*keys]
        self._chance = chance
        self.spare = N  # The node without the table, or about to lose it.
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.away: list[Death] = []

    @property
    def placed(self) -> list[int]:
        """The nodes on which the table is to be placed."""
        return [index for index in ALL if index != self.spare]

    def split(self, *, but: int = 0) -> None:
        """Split a range at a drawn key, at a node that is not away."""
        at = self._chance.choice([index for index in ALL if index != but])
        key = self._chance.choice(self._keys) + b"+%d" % self._chance.randrange(10)
        try:
            self._nodes.ask(at, "split", TABLE, key, {"timeout_ms": COMMAND_MS})
        except GossipKVError as error:  # The range moves, or starts at the key, or too much of it is unsettled.
            self.refused[error.message if not isinstance(error, Conflict) else "conflict"] += 1
        else:
            self.done["split"] += 1

    def die(self) -> None:
        """Kill a node amid splits, and restart it."""
        victim, began_s = self._chance.choice(ALL), time.monotonic()
        self._nodes.cluster.kill(victim)
        self._go_on(victim)
        self._nodes.cluster.start(victim)
        self._is_back("die", began_s)

    def sleep(self) -> None:
        victim, began_s = self._chance.choice(ALL), time.monotonic()
        self._nodes.cluster.send(victim, signal.SIGSTOP)
        self._go_on(victim)
        self._nodes.cluster.send(victim, signal.SIGCONT)
        self._is_back("sleep", began_s)

    def lose(self) -> None:
        """Lose a node with its disk; the spare node replaces it by force, and the lost node becomes the spare."""
        self._until_whole()
        nodes, victim, began_s = self._nodes, self._chance.choice(self.placed), time.monotonic()
        asked = self._chance.choice([index for index in self.placed if index != victim])
        shutil.rmtree(Path(nodes.cluster.kill(victim).data))
        until(lambda: nodes.alive(asked), lambda alive: f"n{victim}" not in alive)
        self._go_on(victim)
        self._say(asked, "replace_node", f"n{victim}", f"n{self.spare}", {"force": True, "timeout_ms": COMMAND_MS})
        decide = ("metadata", "replace", f"n{victim}", f"n{self.spare}", "--node", nodes.cluster.node(asked).address)
        until(lambda: gossipkv(*decide), lambda said: said.returncode == 0)
        self._go_on(victim)
        self.spare = victim
        self._until_whole(by=asked)
        nodes.cluster.start(victim)
        self._is_back("lose", began_s)

    def swap(self) -> None:
        """Add the spare node, and remove another one."""
        self._until_whole()
        leaver = self._chance.choice(self.placed)
        self._say(self._chance.choice(ALL), "add_node", f"n{self.spare}", {"timeout_ms": COMMAND_MS})
        self.split()
        self._say(self._chance.choice(ALL), "remove_node", f"n{leaver}", {"timeout_ms": COMMAND_MS})
        self.split()
        self.spare = leaver
        self.done["swap"] += 1

    def _go_on(self, away: int) -> None:
        for _ in range(self._chance.randrange(4)):
            self.split(but=away)
        time.sleep(self._chance.uniform(0, 2))

    def _is_back(self, what: str, began_s: float) -> None:
        self._nodes.all_alive(ALL)
        self.away.append(Death(began_s, time.monotonic()))
        self.done[what] += 1

    def _say(self, at: int, method: str, *params: object) -> None:
        """Repeat a command until it is done: the commands are idempotent."""
        until(lambda: [self._nodes.ask(at, method, *params)], bool)

    def _until_whole(self, by: int = 1) -> None:
        until(lambda: is_quiet(self._nodes, by), bool, within_s=SETTLE_S)


def test_nothing_is_lost_whatever_fails(tmp_path, record_property):
    """No read fails, no scan is wrong, no session steps back, and finally all ranges are whole, well and equal."""
    chance = random.Random(SEED)
    with Cluster(tmp_path, nodes=N - 1, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(range(1, N))
        records = lay(cluster, kind="range", replication=3)
        all_know(nodes, range(1, N))
        cluster.add()
        nodes.all_alive(ALL)
        days = Days(nodes, records, chance)
        addresses = [node.address for node in cluster.status()]
        scans = scanning.Scans(addresses, records, seed=SEED, held_s=HELD_S)
        with traffic_at(nodes, seed=SEED, pause_s=PAUSE_S) as traffic, scans:
            over_s = time.monotonic() + SECONDS
            faults = [days.die, days.sleep, days.swap, days.lose]
            while time.monotonic() < over_s or len(days.done) <= len(faults):
                chance.choice(faults)()
                days.split()
                traffic.goes_on(0.2, LEAST)
        reads, writes = traffic.failures()
        told = f"{days.done}, refused {days.refused}, {len(starts(nodes, 1))} ranges, {scans.done} scans, "
        told += f"{traffic.counts()}, failed {len(reads)}, {len(writes)}, {len(scans.failed)}"
        record_property("measured", told[:2000])
        assert (reads, scans.faults, scans.done > 0) == ([], [], True)
        assert [one for one in writes + scans.failed if not any(one.is_amid(death) for death in days.away)] == []
        shares(nodes, ALL, days.placed)
        for index in days.placed:
            until(lambda index=index: is_settled(nodes, index), bool, within_s=SETTLE_S)
        check(nodes, traffic, days.placed[0])
        assert still_there(cluster, days.placed[0], records) == []
        verified = gossipkv("verify", "--table", TABLE, "--node", addresses[0])
        assert (verified.returncode, "all replicas are equal" in verified.stdout) == (0, True), verified
