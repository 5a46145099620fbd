"""Short runs under random faults.

`SMALL_WORLDS` is the number of runs per kind, `SMALL_WORLDS_FIRST` their first seed.
"""

from __future__ import annotations

from tests.unit.register.small_world import Odds, SmallWorld

STEPS = 400

ODDS = {
    "the same acceptors": Odds(reconfigure=0, lag=0),
    "others now and then": Odds(),
    "others all the time": Odds(reconfigure=30, restart=10, crash=15, crash_after_answer=0.03, dropped=0.1),
    "sets that hardly meet": Odds(
        reconfigure=60, restart=25, crash=3, stop=0, lag=0, dropped=0.25, doubled=0.02, submit=40, sync=200
    ),
    "a bad net": Odds(dropped=0.2, doubled=0.2, crash=20),
    "disks are lost and put back": Odds(lose=3, put_back=4, reconfigure=25),
    "forces": Odds(force=8, stop=14),
    "hardly a fault": Odds(
        reconfigure=3, crash=2, dropped=0.01, doubled=0.01, restart=1, stop=1, crash_after_answer=0.002
    ),
}


def world_of(name: str, seed: int) -> SmallWorld:
    return SmallWorld(seed, ODDS[name])


def test_a_run_follows_from_its_seed():
    first, again, other = (world_of("others now and then", seed) for seed in (1, 1, 2))
    for world in (first, again, other):
        world.run(STEPS)
    assert first.history.committed == again.history.committed != other.history.committed
    assert first.now_ms == again.now_ms
