"""A verdict over twenty nodes stays cheap: a ceiling for the Python calls of the asked node, and of each other one."""

from __future__ import annotations

from tests.simulation.calls import count_verdict

CEILINGS = {"verdict, the asked node": 1500, "verdict, another node": 1000}


def test_the_calls_of_a_verdict() -> None:
    counted = count_verdict()
    for node, ceiling in CEILINGS.items():
        assert counted[node].total <= ceiling, f"{node}: {counted[node]}"
