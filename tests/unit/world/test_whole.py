"""`python -m tests.world --whole`: its output and its exit status."""

import json

import pytest

from tests.world.nodes import replay
from tests.world.nodes.whole_cluster import Violation


async def fine(cluster):
    cluster.struck["cut"] += 2
    await cluster.machines[0].start()


async def broken(cluster):
    await fine(cluster)
    raise Violation("as planted")


async def silent(cluster):
    """Ask a node that is off."""
    await cluster.ask(cluster.machines[0], "ping", timeout_s=1)


@pytest.fixture
def scenarios(monkeypatch):
    """Replace the scenarios by quick ones, under existing names."""
    monkeypatch.setattr(replay, "SCENARIOS", {"join": fine, "storm": broken, "leave": silent})


@pytest.mark.usefixtures("scenarios")
def test_a_run_that_ends_well(run):
    """The trace is the same each time."""
    told = [run("--whole", "join", "--members", "2", "--seed", "7", "--json") for _ in range(2)]
    assert [result.status for result in told] == [0, 0]
    first, second = (json.loads(result.out) for result in told)
    assert first == second
    assert first["struck"] == {"cut": 2, "slow lives": 1}
    text = run("--whole", "join", "--members", "2", "--seed", "7")
    head = f"seed 7: join, 2 whole nodes, trace {first['trace']}, {first['virtual_s']:.1f} s"
    assert text.out == f"{head}\nstruck: cut 2, slow lives 1\nPASS: all promises held; runs: 1\n"


@pytest.mark.usefixtures("scenarios")
def test_a_run_that_does_not(run):
    """The last log lines, the violation and the replay command are printed; each seed is tried."""
    result = run("--whole", "storm", "--members", "2", "--seed", "3", "--runs", "2")
    assert result.status == 3
    assert result.out.count("event=ready") == result.out.count("Violation: as planted") == 2
    assert "BROKEN; to replay: python -m tests.world --whole storm --members 2 --seed 4\n" in result.out
    found = run("--whole", "storm", "--members", "2", "--seed", "3", "--json")
    assert json.loads(found.out)["error"] == "Violation: as planted"


@pytest.mark.usefixtures("scenarios")
def test_a_run_whose_check_is_not_answered(run):
    """The run counts as broken, has a replay command, and the following seeds are tried."""
    result = run("--whole", "leave", "--members", "2", "--seed", "3", "--runs", "2")
    assert (result.status, result.err) == (3, "")
    assert result.out.count("\nUnavailable: ") == 2
    assert "BROKEN; to replay: python -m tests.world --whole leave --members 2 --seed 4\n" in result.out


def test_a_scenario_that_there_is_not(run):
    """The error lists the known scenarios."""
    result = run("--whole", "peace", "--seed", "1")
    assert result.status == 2
    assert "'storm'" in result.err


@pytest.mark.usefixtures("scenarios")
@pytest.mark.parametrize(("options", "told"), [
    (["--without", "loss"], "--json alone"), (["--shrink"], "--json alone"), (["--members", "255"], "254 at most"),
])  # fmt: skip
def test_what_whole_nodes_do_not_take(run, options, told):
    """Options that whole nodes do not take are refused with a message."""
    result = run("--whole", "join", "--seed", "1", *options)
    assert (result.status, result.out) == (2, "")
    assert told in result.err
