"""The state machine finds no difference between the connection core and the oracle."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.serving.connection_machine import Connections, use_tables

# Counters of sockets, drains, sleeps and other nodes (`test_forwarding_machine_slow.py`), and those that are 0 at the
# end.
BEYOND_THE_DRIVER = {
    "accept_pauses", "closed_reset", "closed_drained", "closed_cut", "busy_polls", "busy_poll_hits",
    "closed_bad_answer", "closed_abandoned", "closed_unauthorized", "closed_as_asked", "closed_detached", "peers",
    "closed_handshake", "tls_handshakes", "tls_resumed",
    "forwarded", "forward_attempts", "forward_answers", "forward_answers_late", "forward_silences", "forward_rounds",
    "forward_unconnected", "forward_queue_full", "forward_not_served", "forward_not_ready", "forward_unknown_version",
    "forward_corrupt", "forward_overloaded", "forward_refused", "forward_failed",
    "cold_reads", "cold_pages", "cold_pages_failed", "cold_refused",
    "connections", "in_flight", "held_bytes", "waiting_bytes",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _tables(tmp_path, monkeypatch):
    use_tables(tmp_path, monkeypatch)


def test_the_core_is_the_oracle_s_node():
    """Every counter that a driver alone can raise was raised more than once."""
    Connections.met.clear()
    # The inputs follow from the constants of all loaded modules. Fewer examples would miss some counters.
    examples = max(400, settings.default.max_examples * 6)
    chosen = settings(max_examples=examples, stateful_step_count=60)
    run_state_machine_as_test(Connections, settings=chosen)
    assert {name: count for name, count in Connections.met.items() if count < 2} == dict.fromkeys(BEYOND_THE_DRIVER, 0)
