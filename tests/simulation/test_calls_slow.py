"""Transactions, a verdict over twenty nodes and an idle second stay cheap: ceilings for the Python calls of a node."""

from __future__ import annotations

from tests.simulation.calls import count_transactions, count_verdict

CEILINGS = {"verdict, the asked node": 1500, "verdict, another node": 1000, "idle second": 1250}
TRANSACTION_CEILINGS = {"transaction, the asked server": 1600, "transaction, another server": 1050}


def test_the_calls_of_a_verdict() -> None:
    counted = count_verdict()
    for name, ceiling in CEILINGS.items():
        assert counted[name].total <= ceiling, f"{name}: {counted[name]}"


def test_the_calls_of_a_transaction() -> None:
    counted = count_transactions()
    for name, ceiling in TRANSACTION_CEILINGS.items():
        assert counted[name].total <= ceiling, f"{name}: {counted[name]}"
