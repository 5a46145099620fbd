from __future__ import annotations

import pytest

from gossipkv.gossip.packets import messages
from tests.unit.world.test_disk import damage
from tests.unit.world.toy import pings, two
from tests.world.scheduler import MS, SECOND


def set_back(machine):
    """Set the wall clock to long ago, so that the next epoch is one above the kept one."""
    machine.clocks.wall_offset_ms = -(1 << 41)


def test_a_crash_and_a_restart():
    """A crashed process hears and sends nothing; its next start has the same uuid and a higher epoch."""
    world, first, second = two()
    world.run(5 * SECOND)
    uuid, epoch = first.core.boot.uuid, first.core.boot.epoch
    first.crash()
    count = len(second.core.heard)
    world.run(5 * SECOND)
    assert first.core is None
    assert len(second.core.heard) == count
    first.start()
    world.run(5 * SECOND)
    assert first.core.boot.uuid == uuid
    assert first.core.boot.epoch > epoch
    assert len(second.core.heard) > count


def test_power_loss_keeps_what_was_synced():
    """The epoch of a start survives every power loss."""
    world, first, _ = two()
    set_back(first)
    world.run(SECOND)
    begun = first.core.boot.epoch
    for expected in range(begun, begun + 30):
        world.run(SECOND)
        assert first.core.boot.epoch == expected
        first.crash(power=True)
        first.start()


def test_a_lost_disk_is_a_new_one():
    """The machine gets another uuid, and its first epoch is newer than all earlier ones."""
    world, first, _ = two()
    world.run(SECOND)
    uuid, epoch = first.core.boot.uuid, first.core.boot.epoch
    first.crash()
    first.disk.wipe()
    first.start()
    world.run(SECOND)
    assert first.core.boot.uuid != uuid
    assert first.core.boot.epoch > epoch


def test_a_crash_exactly_after_a_send():
    """The fuse lets two datagrams through and none after them."""
    world, first, second = two()
    world.run(2 * SECOND)
    heard, sent = len(second.core.heard), world.network.sent
    second.pause()  # Now only the first machine sends.
    first.restarts = False
    first.set_fuse(2)
    world.run(10 * SECOND)
    assert first.core is None
    assert world.network.sent == sent + 2
    second.resume()
    assert len(second.core.heard) == heard + 2
    assert world.struck["crash_after_send"] == 1


def test_a_crash_around_a_sync():
    """Wherever a write is struck, the disk holds the old or the new document, and both happen."""
    epochs = set()
    for seed in range(40):
        world, first, _ = two(seed)
        set_back(first)
        world.run(SECOND)
        first.disk.crash_soon()
        begun = first.core.boot.epoch
        first.core.store(begun + 49, bytes(8), 1)
        first.after_input()
        first.restarts = False
        world.run(SECOND)
        assert first.core is None
        first.disk.lose_power()
        first.start()
        world.run(SECOND)
        epochs.add(first.core.boot.epoch - begun)
        assert world.struck["crash_at_sync"] == 1
    assert epochs == {1, 50}


@pytest.mark.parametrize("full", [False, True])
def test_a_disk_that_refuses(full):
    """A process that cannot write its epoch at the start stays silent until the epoch is kept."""
    world, first, _ = two()
    world.run(SECOND)
    epoch = first.core.boot.epoch
    first.disk.fail_next(full=full)
    first.crash()
    first.start()
    world.run(SECOND // 2)
    silent = first.core
    assert (silent.boot.silent, silent.spoke_ms) == (True, None)
    silent.store(silent.boot.epoch + 1, b"clusters", 1)
    first.after_input()
    world.run(2 * SECOND)
    assert first.core is silent
    assert silent.spoke_ms is not None
    assert silent.was_stored == [1], "what was to be kept meanwhile was not"
    assert silent.boot.epoch > epoch
    assert world.struck["disk_full" if full else "disk_error"] == 1
    assert world.struck["silent"] == 1


def test_a_first_start_that_the_disk_refuses():
    """The process ends and is started again a second later."""
    world, first, _ = two()
    world.run(SECOND)
    first.crash()
    first.disk.wipe()
    first.disk.fail_next(full=True)
    first.start()
    world.run(SECOND // 2)
    assert first.core is None
    world.run(2 * SECOND)
    assert not first.core.boot.silent


@pytest.mark.parametrize("full", [False, True])
def test_what_the_disk_refused_is_tried_again(full):
    """A running process retries a refused write; later writes wait for the earlier one."""
    world, first, _ = two()
    set_back(first)
    world.run(SECOND)
    epoch = first.core.boot.epoch
    first.disk.fail_next(full=full)
    first.core.store(epoch + 49, b"earlier.", 1)
    first.core.store(epoch + 50, b"clusters", 2)
    first.after_input()
    world.run(SECOND // 4)
    assert first.core.was_stored == []
    world.run(SECOND)
    assert first.core.was_stored == [1, 2]
    assert world.struck["disk_full" if full else "disk_error"] == 1
    first.crash(power=True)
    first.start()
    world.run(SECOND)
    assert (first.core.boot.epoch, first.core.boot.cluster_id) == (epoch + 51, b"clusters")


def test_refused_peers_harm_nobody():
    """The process goes on, and has no remembered peers after a restart."""
    world, first, second = two()
    world.run(SECOND)
    first.disk.fail_next(full=True)
    first.core.remember(second.address)
    first.after_input()
    core = first.core
    world.run(3 * SECOND)
    assert first.core is core
    assert world.struck["disk_full"] == 1
    first.crash()
    first.start()
    world.run(SECOND)
    assert first.core.remembered == []


def test_a_damaged_disk_is_said():
    """The process does not start, and is not restarted in a loop."""
    world, first, _ = two()
    world.run(SECOND)
    first.crash()
    damage(first.disk)
    first.start()
    world.run(10 * SECOND)
    assert first.core is None
    assert "/data/NODE" in str(first.error)


def test_what_is_stored_is_told_and_kept():
    """The core is told of the durable epoch; the next start continues from that epoch and remembers peers."""
    world, first, second = two()
    set_back(first)
    world.run(SECOND)
    first.core.store(7, b"clusters", 3)
    first.core.remember(second.address)
    first.after_input()
    world.run(SECOND)
    assert first.core.was_stored == [3]
    first.crash(power=True)
    first.start()
    world.run(SECOND)
    assert (first.core.boot.epoch, first.core.boot.cluster_id) == (8, b"clusters")
    assert first.core.remembered == [second.address]


def test_a_pause_reads_the_socket_before_timers():
    """After a pause the waiting datagrams are read first, and only then timers run."""
    world, first, _second = two()
    world.run(3 * SECOND)
    first.pause()
    heard, woken = len(first.core.heard), len(first.core.wakes)
    world.run(10 * SECOND)
    assert (len(first.core.heard), len(first.core.wakes)) == (heard, woken)
    wake, at_wake = first.core.wake, []
    first.core.wake = lambda *, now_ms: (at_wake.append(len(first.core.heard)), wake(now_ms=now_ms))
    first.resume()
    assert len(first.core.heard) >= heard + 10
    assert at_wake == [len(first.core.heard)]


def test_a_full_socket_loses_what_does_not_fit():
    world, first, second = two()
    second.joins *= 100
    second.crash()
    second.start()
    world.run(2 * SECOND)
    first.pause()
    world.run(10 * SECOND)
    assert world.struck["socket_full"] > 500
    heard = len(first.core.heard)
    first.resume()
    assert 0 < len(first.core.heard) - heard < 300


def test_starved_io_keeps_timers():
    """A starved process is woken but sends and hears nothing; afterwards both go through."""
    world, first, second = two()
    world.run(3 * SECOND)
    first.starve()
    heard, other, woken = len(first.core.heard), len(pings(second)), len(first.core.wakes)
    world.run(10 * SECOND)
    assert len(first.core.wakes) >= woken + 9
    assert len(first.core.heard) == heard
    assert len(pings(second)) == other
    first.feed()
    world.run(10 * MS)
    assert len(first.core.heard) >= heard + 10
    assert len(pings(second)) >= other + 9


def test_clocks():
    """A fast clock wakes its process more often, a suspended machine's clock stands still, and clocks differ."""
    world, first, second = two()
    world.run(2 * SECOND)
    assert abs(first.now_ms - second.now_ms) > 1000
    first.set_rate(1.1)
    began = len(first.core.wakes)
    world.run(100 * SECOND)
    assert 108 <= len(first.core.wakes) - began <= 111
    first.set_rate(1.0)
    before = first.now_ms
    resume = first.pause(suspend=True)
    world.run(5 * SECOND)
    resume()
    world.run(3 * SECOND)
    assert first.now_ms - before == 3000
    wall = first.clocks.wall_ms()
    first.clocks.wall_offset_ms -= 3_600_000
    assert first.clocks.wall_ms() == wall - 3_600_000


def test_late_timers():
    world, first, _ = two()
    world.run(2 * SECOND)
    first.timer_lag_us = lambda: 700 * MS
    began = len(first.core.wakes)
    world.run(17 * SECOND)
    assert 9 <= len(first.core.wakes) - began <= 11


def test_asks():
    """A request is answered, refused where no process runs, and times out at an unused address or behind a cut."""
    world, first, second = two()
    world.run(SECOND)
    core = first.core
    begin = core.boot and first.now_ms
    core.ask(second.address, b"hello", 1)
    core.ask(second.address, b"no", 2)
    core.ask(world.free_address(), b"hello", 3, 2000)
    first.after_input()
    world.run(SECOND)
    second.crash()
    core.ask(second.address, b"hello", 4)
    first.after_input()
    world.run(SECOND)
    second.start()
    world.run(SECOND)
    world.network.partition([second], [first], one_way=True)
    core.ask(second.address, b"hello", 5, 3000)
    first.after_input()
    world.run(10 * SECOND)
    answers = {token: (now_ms - begin, reply) for now_ms, token, reply in core.answers}
    assert answers[1][1] == b"you said hello"
    assert answers[1][0] < 10
    assert answers[2][1] is None
    assert answers[2][0] < 10
    assert answers[3] == (2000, None)
    assert answers[4][1] is None
    assert answers[4][0] < 1100
    assert answers[5] == (6000, None)


def test_asks_outlive_loss_and_short_cuts():
    """Loss and a short cut only delay answers."""
    world, first, second = two()
    world.run(SECOND)
    world.network.usual.loss = 0.5
    world.network.partition([first], [second])
    for token in range(20):
        first.core.ask(second.address, b"hello", token, 60_000)
    first.after_input()
    world.run(3 * SECOND)
    assert first.core.answers == []
    for link in (world.network.link(first, second), world.network.link(second, first)):
        link.cut = False
    world.run(60 * SECOND)
    assert sorted(token for _, token, reply in first.core.answers if reply is not None) == list(range(20))


def test_asks_of_the_paused_and_the_dying():
    """A paused process answers when it resumes; a crash in a pause breaks the connection."""
    world, first, second = two()
    world.run(SECOND)
    second.pause()
    first.core.ask(second.address, b"hello", 1)
    first.after_input()
    world.run(2 * SECOND)
    assert first.core.answers == []
    second.resume()
    world.run(SECOND)
    assert [reply for *_, reply in first.core.answers] == [b"you said hello"]
    second.pause()
    first.core.ask(second.address, b"hello", 2)
    first.after_input()
    world.run(2 * SECOND)
    second.crash()
    world.run(SECOND)
    assert first.core.answers[1][1:] == (2, None)


def test_a_new_address():
    world, first, second = two()
    world.run(3 * SECOND)
    old = first.address
    first.crash()
    first.move(world.free_address())
    first.start()
    world.run(3 * SECOND)
    assert pings(first) == []  # The other machine has only the old address.
    sources = {source for _, kind, _, source in second.core.heard if kind == messages.PING}
    assert sources == {old, first.address}
