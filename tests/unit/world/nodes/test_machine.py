"""The ends of a simulated machine's process: the state that each leaves, and what peers notice."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from gossipkv.errors import DirectoryInUse, StorageError, TimedOut, Unavailable
from tests.world.faulty_files import CHANGING, Action, Fault
from tests.world.nodes.phases import strike_one
from tests.world.nodes.whole_cluster import Defect, simulate

if TYPE_CHECKING:
    from tests.world.nodes.whole_cluster import SimulatedCluster


def test_a_killed_node_restarts_as_itself() -> None:
    """After a kill the lock is free and the documents are whole; clients are refused until the restart."""

    async def scenario(cluster: SimulatedCluster) -> None:
        (machine,) = cluster.machines
        epochs = []
        for _ in range(3):
            await machine.start()
            info = await cluster.ask(machine, "info")
            assert isinstance(info, dict)
            assert info["node"] == "n1"
            epochs.append(info["epoch"])
            machine.kill()
            with pytest.raises(Unavailable):
                await cluster.ask(machine, "ping")
        assert epochs == sorted(set(epochs))

    simulate(scenario, 1, machines=1)


def test_a_machine_without_power_does_not_answer() -> None:
    """Requests to it time out; afterwards it serves again with whatever its disk has kept."""

    async def scenario(cluster: SimulatedCluster) -> None:
        (machine,) = cluster.machines
        for _ in range(5):
            await machine.start()
            await cluster.ask(machine, "ping")
            machine.lose_power()
            with pytest.raises(TimedOut):
                await cluster.ask(machine, "ping")

    for seed in range(5):
        simulate(scenario, seed, machines=1)


def test_only_what_strikes_is_counted() -> None:
    """A fault for a process that does not run is not counted, nor is a pending crash before it strikes."""

    async def scenario(cluster: SimulatedCluster) -> None:
        while not any(machine.runs for machine in cluster.machines):
            await strike_one(cluster)
        assert set(cluster.struck) <= {"heal", "cut", "clog", "slow lives"}
        machine = cluster.machines[0]
        machine.kill()
        machine.strike(Fault(0, Action.CRASH_BEFORE, kinds=CHANGING))
        assert cluster.struck["crash"] == 0
        await machine.start()
        assert (machine.runs, cluster.struck["crash"]) == (False, 1)

    for seed in range(5):
        simulate(scenario, seed, machines=2)


def test_a_full_disk_is_an_error_of_its_own() -> None:
    """The node ends with a StorageError, which is no defect."""

    async def scenario(cluster: SimulatedCluster) -> None:
        (machine,) = cluster.machines
        machine.disk.capacity_bytes = 10
        await machine.start()
        assert not machine.runs
        assert isinstance(machine.error, StorageError)

    simulate(scenario, 1, machines=1)


def test_sigterm_ends_a_node_and_a_second_one_at_once() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        (machine,) = cluster.machines
        await machine.start()
        await machine.stop()
        assert not machine.runs
        assert machine.error is None
        await machine.start()
        machine.tell(signal.SIGTERM)
        machine.tell(signal.SIGTERM)
        with trio.fail_after(1):
            await machine.ended()

    simulate(scenario, 1, machines=1)


def test_a_signal_that_nobody_awaits_ends_the_process() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        (machine,) = cluster.machines
        async with trio.open_nursery() as nursery:
            nursery.start_soon(machine.start)
            await trio.testing.wait_all_tasks_blocked()
            machine.tell(signal.SIGTERM)
        assert not machine.runs

    simulate(scenario, 1, machines=1)


def test_two_nodes_do_not_share_a_directory() -> None:
    """The lock of a directory is held by one process and is freed when that process ends."""

    async def scenario(cluster: SimulatedCluster) -> None:
        first, second = cluster.machines
        await first.start()
        second.disk = first.disk
        await second.start()
        assert isinstance(second.error, DirectoryInUse)
        first.kill()
        await second.start()
        assert second.runs

    simulate(scenario, 1, machines=2)


def test_a_defect_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception in a method ends the run with the log line that reports it."""

    async def scenario(cluster: SimulatedCluster) -> None:
        (machine,) = cluster.machines
        await machine.start()
        await cluster.ask(machine, "info")

    monkeypatch.setattr("gossipkv.node.info.OURS", [property])  # A property cannot be encoded.
    with pytest.raises(Defect, match="internal_error"):
        simulate(scenario, 1, machines=1)
