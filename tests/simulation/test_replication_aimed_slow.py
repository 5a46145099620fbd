"""Tests over real processes, sockets, threads or time; `test_replication_aimed.py` has the others."""

from __future__ import annotations

import pytest
import trio

from gossipkv.replication.replica.acks import MAJORITY
from tests.simulation import test_replication_aimed as aimed
from tests.simulation.staged_copies import put, staged, ways


@pytest.mark.parametrize("cut", [((1, 2), (2, 1)), ((1, 2),)])
def test_a_link_is_cut_under_load(cut):
    """After a cut between two of three nodes, detours add little delay, not a relay time per record."""

    async def play(cluster):
        async def write(until_s):
            while trio.current_time() < until_s:
                for at in range(3):
                    put(cluster, at, level=MAJORITY, key=b"key%d" % at)
                await trio.sleep(0.02)

        await write(1.5)
        began_s = trio.current_time()
        ways(cluster, *cut)
        await write(began_s + 2.0)
        cluster.witness.check_latency(began_s, began_s + 0.7)

    staged(play)


@pytest.mark.parametrize("at", range(1, 13))
def test_power_lost_around_a_push(at):
    aimed.test_power_lost_around_a_push(at)


@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("who", ["loader", "source", "log"])
def test_a_load_that_is_torn(who, at):
    aimed.test_a_load_that_is_torn(who, at)


@pytest.mark.parametrize("seed", [1, 2])
def test_all_load_from_each_other_and_again(seed):
    aimed.test_all_load_from_each_other_and_again(seed)
