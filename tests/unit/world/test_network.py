from __future__ import annotations

import pytest

from tests.unit.world.toy import pings, two
from tests.world.scheduler import MS, SECOND


def test_quiet_links_lose_nothing():
    world, _first, second = two()
    world.run(100 * SECOND)
    assert len(pings(second)) in {99, 100}
    assert pings(second) == sorted(pings(second)) == list(range(1, len(pings(second)) + 1))
    assert not world.struck


def test_loss():
    """The loss is about as frequent as configured, in that direction only."""
    world, first, second = two()
    world.network.link(first, second).loss = 0.3
    world.network.changed()
    world.run(1000 * SECOND)
    assert 600 < len(pings(second)) < 800
    assert len(pings(first)) >= 999
    assert world.struck["loss"] > 250


def test_a_one_way_cut():
    world, first, second = two()
    world.network.partition([first], [second], one_way=True)
    world.run(10 * SECOND)
    assert pings(second) == []
    assert len(pings(first)) >= 9
    world.network.heal()
    world.run(10 * SECOND)
    assert len(pings(second)) >= 9


def test_datagrams_cut_alone():
    world, first, second = two()
    world.network.link(first, second).datagrams_cut = True
    world.network.changed()
    world.run(2 * SECOND)
    first.core.ask(second.address, b"hello", 7)
    first.after_input()
    world.run(SECOND)
    assert pings(second) == []
    assert [answer[1:] for answer in first.core.answers] == [(7, b"you said hello")]


@pytest.mark.parametrize("fault", ["duplicate", "reorder", "corrupt", "heavy_delay"])
def test_each_fault_of_a_link_shows(fault):
    """Duplicates come twice, reordered and delayed datagrams late, and the codec drops damaged ones."""
    world, first, second = two()
    setattr(world.network.usual, fault, 0.5)
    world.network.changed()
    world.run(100 * SECOND)
    got, sent = pings(second), first.core.sequence
    assert world.struck[fault] > 50
    if fault == "duplicate":
        assert len(got) > 1.3 * sent
    elif fault == "corrupt":
        assert second.core.dropped > 0
        assert len(got) < 0.8 * sent
    else:
        gaps = [now_ms % 1000 for now_ms, *_ in second.core.heard]
        assert max(gaps) - min(gaps) > 5  # Delays of quiet links differ by less than 1 ms.


def test_late_datagrams_overtake():
    world, first, second = two()
    for machine in (first, second):
        machine.joins *= 3
    world.network.usual.reorder = 0.5
    world.network.changed()
    world.run(2 * SECOND)
    first.core.sequence = 100  # Three datagrams leave at once, and three more within a millisecond.
    first.core.wakes_at_ms = first.now_ms
    first.poke()
    first.core.wakes_at_ms = first.now_ms
    first.poke()
    world.run(200 * MS)
    late = [sequence for sequence in pings(second) if sequence > 100]
    assert sorted(late) != late


def test_a_clogged_link_delivers_at_once_and_in_order():
    """The waiting datagrams arrive in the moment in which the clog ends."""
    world, first, second = two()
    world.run(2 * SECOND)
    before = len(second.core.heard)
    world.network.link(first, second).clogged_until_us = world.now_us + 5 * SECOND
    world.network.changed()
    world.run(4 * SECOND)
    assert len(second.core.heard) == before
    world.run(1 * SECOND)
    new = second.core.heard[before:]
    assert len({now_ms for now_ms, *_ in new if new}) == 1
    assert pings(second) == sorted(pings(second))


def test_a_small_mtu_swallows_large_datagrams():
    world, _first, second = two()
    world.network.usual.mtu_bytes = 40
    world.network.changed()
    world.run(10 * SECOND)
    assert pings(second) == []
    assert world.struck["mtu"] >= 18


def run_for_trace(seed):
    """Return the trace of a run with every fault of a link."""
    world, _, _ = two(seed)
    usual = world.network.usual
    usual.loss = usual.duplicate = usual.reorder = usual.corrupt = usual.heavy_delay = 0.2
    world.network.changed()
    world.run(50 * SECOND)
    return world.trace


def test_the_same_seed_is_the_same_run():
    assert run_for_trace(1) == run_for_trace(1) != run_for_trace(2)


def test_a_draw_more_in_one_stream_changes_no_other():
    first, _, _ = two(5)
    second, _, _ = two(5)
    second.streams["network/loss?"].random()
    assert first.streams["network/delay"].random() == second.streams["network/delay"].random()
    assert first.streams["disk/first"].random() == second.streams["disk/first"].random()
