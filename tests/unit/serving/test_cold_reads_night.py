"""A thousand cold batches at once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.unit.serving import test_cold_reads_slow as usual
from tests.unit.serving.driven import publish
from tests.unit.serving.test_cold_reads_slow import KEYS, RECORDS, Client, Question, made
from tests.world.cold_pages import pages_come_and_go

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.serving.test_serving_slow import Served


served = usual.served


def test_a_thousand_cold_batches_at_once(served: Served, tmp_path: Path) -> None:
    """All batches and the pings among them are answered, and nothing is held at the end."""
    with pages_come_and_go(4):
        version = made(tmp_path / "cold", "none")
    served.core.publish(publish([(version, True)]).table())
    chance = random.Random(4)
    clients, other = [Client(served) for _ in range(20)], Client(served)
    for msgid in range(1000):
        keys = chance.choices(KEYS, k=60)
        batch = Question("get_many", ["db", [*keys]], [RECORDS[key] for key in keys])
        clients[msgid % len(clients)].ask(msgid, batch)

    def done() -> bool:
        if other.is_done() and any(client.asked for client in clients):
            other.ask(other.answered, Question("ping", [], "p"))
        return not [client for client in (*clients, other) if not client.is_done()]

    served.until(done)
    assert sum(client.answered for client in clients) == 1000
    assert other.answered > 5, "or they were not asked at once"
    counters = served.core.counters()
    assert counters["cold_pages"] > 1000
    assert (counters["held_bytes"], counters["in_flight"]) == (0, 0)
