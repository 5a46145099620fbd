"""The two promises of sealed runs, each broken on purpose."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from gossipkv.gossip.packets.envelope import Envelope
from tests.world.gossip import keys
from tests.world.gossip.members import CLUSTER
from tests.world.gossip.swarm import SwarmPlan, run

if TYPE_CHECKING:
    import pytest

SEED = 8  # The seed of a run with a restart.


class Standing:
    """A sealing with a counter that stands still."""

    def __init__(self, real):
        self._real = real

    def __getattr__(self, name):
        return getattr(self._real, name)

    def seal(self, prefix, message):
        self._real._counter = 0
        return self._real.seal(prefix, message)


def complaints():
    """Return the names of the checkers that complain of a sealed run."""
    return {violation.checker for violation in run(SwarmPlan(SEED, sealed=True)).violations}


def test_a_right_run():
    outcome = run(SwarmPlan(SEED, sealed=True))
    assert outcome.is_right
    assert outcome.struck["keys_changed"] > 0
    assert outcome.struck["crash"] > 0


def test_a_session_that_outlives_its_process(monkeypatch: pytest.MonkeyPatch):
    """A session with counters that begin again after a restart is reported."""

    def again(self, boot):
        made = self._running[boot.name] = keys.sealing(self._file(boot.name), boot.name.encode().ljust(16))
        return made

    monkeypatch.setattr(keys.Keys, "sealing", again)
    assert "no_nonce_twice" in complaints()


def test_a_counter_that_stands(monkeypatch: pytest.MonkeyPatch):
    def standing(ring, session):
        return Standing(real(ring, session))

    real = keys.sealing
    monkeypatch.setattr(keys, "sealing", standing)
    assert "no_nonce_twice" in complaints()


def test_a_member_that_sends_plain(monkeypatch: pytest.MonkeyPatch):
    chance, real = Random(1), Envelope.wrap

    def wrap(envelope, message, version=None):
        return (
            Envelope(CLUSTER, envelope.cluster_id).wrap(message) if chance.random() < 0.1 else real(envelope, message)
        )

    monkeypatch.setattr(Envelope, "wrap", wrap)
    assert "everything_is_sealed" in complaints()
