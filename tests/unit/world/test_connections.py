"""Ordered connections deliver in order or break, name both ends, and never mix old and new connections."""

from __future__ import annotations

import itertools

import pytest

from tests.world.connections import BREAK_US, BUFFER_BYTES, Connections, Identity
from tests.world.rig import NEVER_MS
from tests.world.scheduler import MS, SECOND
from tests.world.world import World


class Talker:
    """A process that records what it hears; with `answers` it echoes each message."""

    def __init__(self, machine, connections):
        self.machine, self.connections = machine, connections
        self.connections.listen(machine, self)
        self.said = []  # Events of all lives: (life, event, …).
        self.answers = False
        self.wakes_at_ms = NEVER_MS

    @property
    def identity(self):
        return Identity(self.machine.name.encode(), self.machine.number, self.machine.life)

    def boot(self):
        self.machine.began(self)

    def end(self):
        pass

    def act(self, *, now_ms):
        return NEVER_MS

    wake = act

    def receive(self, packet, source, *, now_ms):
        return NEVER_MS

    def poke(self, *, now_ms):
        pass

    def join(self, addresses, *, now_ms):
        pass

    def leave(self, *, now_ms):
        pass

    def on_connected(self, peer):
        self.said.append((self.machine.life, "connected", peer))

    def on_message(self, peer, message):
        self.said.append((self.machine.life, "message", peer, message))
        if self.answers:
            self.connections.answer(self.machine, peer, message)

    def on_broken(self, address, peer):
        self.said.append((self.machine.life, "broken", peer))

    # Methods that tests call.

    def send(self, other, message):
        self.connections.send(self.machine, other.machine.address, message)

    def messages(self):
        return [said[3] for said in self.said if said[1] == "message"]

    def kinds(self):
        return [said[1] for said in self.said]


def talkers(count=2, seed=1):
    """Return a world of `count` running machines, and their rigs."""
    world = World(seed)
    connections = Connections(world)
    for number in range(count):
        world.add(f"t{number}", lambda machine: Talker(machine, connections)).start()
    world.run(50 * MS)
    return world, *(machine.rig for machine in world.machines)


LAST = 999_999  # The number of a message after all faults.


def numbered(first, count):
    return [b"%d" % number for number in range(first, first + count)]


def link(world, source, target):
    """Return the link of one direction, for a test to configure."""
    found = world.network.link(source.machine, target.machine)
    world.network.changed()
    return found


def test_both_are_told_who_is_there():
    """Each end learns the other's node, store and life before any message; one connection serves both."""
    world, first, second = talkers()
    second.answers = True
    first.send(second, b"hello")
    world.run(SECOND)
    assert first.kinds() == second.kinds() == ["connected", "message"]
    (_, _, there), (_, _, here) = first.said[0], second.said[0]
    assert there[:4] == (second.machine.address, b"t1", 1, 1)
    assert here[:4] == (first.machine.address, b"t0", 0, 1)
    assert there.number == here.number
    second.send(first, b"more")
    world.run(SECOND)
    assert first.messages() == [b"hello", b"more"]
    assert first.kinds() == ["connected", "message", "message"]


@pytest.mark.parametrize("seed", range(10))
def test_messages_come_in_order(seed):
    """Faults of single segments neither lose nor reorder messages."""
    world, first, second = talkers(seed=seed)
    usual = world.network.usual
    usual.loss, usual.heavy_delay, usual.reorder, usual.duplicate, usual.corrupt = 0.2, 0.3, 0.5, 0.5, 0.5
    world.network.changed()
    chance = world.streams["test"]
    sent = numbered(0, 100)
    for at, message in enumerate(sent):
        world.scheduler.after(int(at * chance.random() ** 4 * MS), lambda message=message: first.send(second, message))
    there, back = [], []
    first.connections.on_send.append(
        lambda machine, _, message: (there if machine is first.machine else back).append(message)
    )
    for message in numbered(500, 20):
        second.send(first, message)
    world.run(60 * SECOND)
    assert sorted(there) == sorted(sent)
    assert second.messages() == there
    assert first.messages() == back == numbered(500, 20)


def test_both_may_begin_at_once():
    world, first, second = talkers()
    first.send(second, b"a")
    second.send(first, b"b")
    world.run(SECOND)
    assert (first.kinds(), second.kinds()) == (["connected", "message"], ["connected", "message"])
    assert (first.messages(), second.messages()) == ([b"b"], [b"a"])


def test_nobody_there():
    """A machine without its process refuses at once; an unused address fails after the break time."""
    world, first, second = talkers()
    second.machine.crash()
    first.send(second, b"hello")
    world.run(100 * MS)
    assert first.said == [(1, "broken", None)]
    first.connections.send(first.machine, World(3).free_address()._replace(host="10.9.9.9"), b"hello")
    world.run(BREAK_US - SECOND)
    assert len(first.said) == 1
    world.run(SECOND)
    assert first.said[1:] == [(1, "broken", None)]
    second.machine.start()
    world.run(SECOND)
    second.send(first, b"here")
    world.run(SECOND)
    assert first.messages() == [b"here"]


@pytest.mark.parametrize("seed", range(20))
def test_a_restart_is_a_break(seed):
    """The other end is told of the break, and no message reaches a later life than it was sent to."""
    world, first, second = talkers(seed=seed)
    first.send(second, b"0")
    world.run(SECOND)
    for message in numbered(1, 50):
        first.send(second, message)
    world.run(world.streams["test"].randrange(1000))
    second.machine.crash(power=True)
    second.machine.start()
    world.run(BREAK_US + SECOND)
    assert first.kinds() == ["connected", "broken"]
    old = [said for said in second.said if said[0] == 1]
    assert second.said == old, "it heard something in its second life"
    assert second.messages() == numbered(0, len(second.messages()))
    first.send(second, b"new")
    world.run(SECOND)
    assert second.kinds()[-2:] == ["connected", "message"]
    (life, _, peer, message) = second.said[-1]
    assert (life, message) == (second.machine.life, b"new")
    assert peer.number != old[0][2].number
    assert first.said[-1][2][3] == second.machine.life


@pytest.mark.parametrize("seed", range(20))
def test_what_was_sent_before_a_crash_arrives(seed):
    """The message before a crash arrives, and then the other end is told of the break."""
    world, first, second = talkers(seed=seed)
    first.send(second, b"0")
    world.run(SECOND)
    first.machine.restarts = False
    first.machine.set_fuse(2)
    first.send(second, b"1")
    first.send(second, b"2")
    assert not first.machine.is_up
    world.run(BREAK_US + SECOND)
    assert second.messages() == [b"0", b"1", b"2"]
    assert second.kinds()[-1] == "broken"
    assert world.struck["crash_after_send"] == 1


def test_some_machines_tell_nobody():
    """The other end usually hears at once of a process's end and sometimes later, but always hears."""
    took = []
    for seed in range(40):
        world, first, second = talkers(seed=seed)
        first.send(second, b"0")
        world.run(SECOND)
        first.machine.crash(power=True)
        began_us = world.now_us
        while second.kinds()[-1] != "broken":
            world.run(10 * MS)
        took.append(world.now_us - began_us)
    at_once = sum(each <= 10 * MS for each in took)
    assert 20 < at_once < 40
    assert SECOND < max(took) <= BREAK_US


def test_who_sends_to_the_restarted_hears_soon():
    """A restarted peer's machine reports that the connection is unknown."""
    for seed in range(20):
        world, first, second = talkers(seed=seed)
        first.send(second, b"0")
        world.run(SECOND)
        second.machine.crash(power=True)
        second.machine.start()
        world.run(100 * MS)
        if first.kinds()[-1] != "broken":
            break
    first.send(second, b"1")
    world.run(10 * MS)
    assert first.kinds() == ["connected", "broken"]
    assert second.messages() == [b"0"]


def test_a_cut_that_heals_in_time():
    world, first, second = talkers()
    first.send(second, b"0")
    world.run(SECOND)
    link(world, first, second).cut = True
    first.send(second, b"1")
    world.run(BREAK_US - SECOND)
    assert second.messages() == [b"0"]
    first.send(second, b"2")
    link(world, first, second).cut = False
    world.run(SECOND)
    assert second.messages() == [b"0", b"1", b"2"]
    assert first.kinds() == ["connected"]


def test_a_cut_that_lasts():
    """A one-way cut breaks both ends; messages of the other direction arrive meanwhile; a new connection follows."""
    world, first, second = talkers()
    first.send(second, b"0")
    world.run(SECOND)
    link(world, first, second).cut = True
    first.send(second, b"lost")
    second.send(first, b"heard")
    world.run(SECOND)
    assert first.messages() == [b"heard"]
    world.run(BREAK_US)
    assert first.kinds() == ["connected", "message", "broken"]
    assert second.kinds() == ["connected", "message"]
    world.run(BREAK_US + SECOND)
    assert second.kinds() == ["connected", "message", "broken"]
    link(world, first, second).cut = False
    first.send(second, b"new")
    world.run(SECOND)
    assert second.messages() == [b"0", b"new"]


def test_connects_may_be_cut():
    """A cut of new connections leaves existing ones alone."""
    world, first, second, third = talkers(3)
    first.send(second, b"0")
    world.run(SECOND)
    for other in (second, third):
        link(world, first, other).connects_cut = True
        first.send(other, b"1")
    world.run(BREAK_US + SECOND)
    assert second.messages() == [b"0", b"1"]
    assert third.said == []
    assert first.kinds() == ["connected", "broken"]


def test_the_paused_read_later():
    """Messages that arrive during a pause wait in order, and so does the news that the connection is over."""
    world, first, second = talkers()
    first.send(second, b"0")
    world.run(SECOND)
    second.machine.pause()
    for message in numbered(1, 5):
        first.send(second, message)
    world.run(2 * BREAK_US)
    first.machine.crash()
    world.run(2 * BREAK_US)
    assert second.kinds() == ["connected", "message"]
    second.machine.resume()
    assert second.messages() == numbered(0, 6)
    assert second.kinds()[-1] == "broken"


def test_a_starved_sender():
    """Nothing leaves a starved process; a long starvation breaks the connection."""
    world, first, second = talkers()
    first.send(second, b"0")
    world.run(SECOND)
    first.machine.starve()
    first.send(second, b"1")
    world.run(2 * SECOND)
    assert second.messages() == [b"0"]
    first.machine.feed()
    world.run(SECOND)
    assert second.messages() == [b"0", b"1"]
    first.machine.starve()
    first.send(second, b"2")
    world.run(BREAK_US + SECOND)
    first.machine.feed()
    world.run(SECOND)
    assert second.messages() == [b"0", b"1"]
    assert first.kinds() == ["connected", "broken"]


def test_a_full_buffer():
    """A buffer that overflows breaks the connection; its capacity is kept for a paused reader."""
    world, first, second = talkers()
    second.machine.pause()
    large = bytes(BUFFER_BYTES // 4)
    for _ in range(3):
        first.send(second, large)
    world.run(2 * BREAK_US)
    assert first.said == []
    first.send(second, large)
    assert first.said == [], "a rig is not called while it calls"
    world.run(SECOND)
    assert first.said == [(1, "broken", None)]
    assert world.struck["connection_full"] == 1


def test_an_end_that_closes():
    """The closing end hears nothing more, the other end is told, and unsent messages never leave."""
    world, first, second = talkers()
    first.on_connected = lambda peer: first.connections.close(first.machine, peer)
    first.send(second, b"not for you")
    world.run(SECOND)
    assert first.said == []
    assert second.kinds() == ["connected", "broken"]
    peer = second.said[0][2]
    assert not second.connections.answer(second.machine, peer, b"late")
    del first.on_connected
    first.send(second, b"for you")
    world.run(SECOND)
    assert second.messages() == [b"for you"]
    assert second.said[-1][2] != peer


def strike(world, one, other, what, chance):
    """Apply a fault to a machine or a link."""
    machine = one.machine
    held_us = chance.randrange(8 * SECOND)
    match what:
        case "restart":
            machine.start()
        case "cut":
            world.network.partition([machine], [other.machine], one_way=chance.random() < 1 / 2)
        case "join":
            world.network.join(world.machines)
        case "crash" if machine.is_up:
            machine.crash(power=chance.random() < 1 / 2)
        case "pause" if machine.is_up and not machine.is_held:
            world.scheduler.after(held_us, machine.pause())
        case "starve" if machine.is_up and not machine.is_held:
            world.scheduler.after(held_us, machine.starve())


def run_of(seed):
    """Return the trace, and all that three talkers heard in a minute of faults and 15 seconds after it."""
    world, *rigs = talkers(3, seed)
    chance, numbers = world.streams["test"], itertools.count(1)
    world.network.usual.loss = world.network.usual.heavy_delay = 0.1
    world.network.changed()

    def act():
        one, other = chance.sample(rigs, 2)
        if chance.random() < 0.08:
            what = chance.choice(("restart", "restart", "restart", "cut", "join", "join", "crash", "pause", "starve"))
            strike(world, one, other, what, chance)
        elif one.machine.is_up and not one.machine.is_paused:
            one.send(other, b"%d from %d in %d" % (next(numbers), one.machine.number, one.machine.life))
        return world.now_us < 60 * SECOND

    world.scheduler.every(20 * MS, act)
    world.run(60 * SECOND)
    world.network.heal()
    for machine in world.machines:
        machine.heal()
    world.run(2 * BREAK_US + SECOND)  # By then all ends have heard of broken connections.
    for one, other in itertools.permutations(rigs, 2):
        one.send(other, b"%d from %d in %d" % (LAST, one.machine.number, one.machine.life))
    world.run(2 * SECOND)
    return world.trace, [rig.said for rig in rigs]


@pytest.mark.parametrize("seed", range(12))
def test_whatever_strikes(seed):
    """Each end of a connection first hears the peer's name, then messages in order, then once of the break."""
    _, told = run_of(seed)
    heard = 0
    for said in told:
        states = {}
        for life, what, peer, *rest in said:
            if peer is None:
                continue
            key = life, peer.number
            if what == "connected":
                assert key not in states
                states[key] = 0
            elif what == "broken":
                assert states.pop(key) >= 0
                states[key] = -1
            else:
                number, _, sender, _, its_life = rest[0].split()
                assert b"t%d" % int(sender) == peer.uuid
                assert int(its_life) == peer.life
                assert int(number) > states[key] >= 0
                states[key] = int(number)
                heard += 1
        last = [int(one[3].split()[0]) for one in said if one[1] == "message"][-2:]
        assert last == [LAST, LAST], "not everybody can be reached again"
    assert heard > 300


def test_the_same_twice():
    assert run_of(5) == run_of(5)
    assert run_of(5) != run_of(6)
