"""Slots that confirm: by all of their hosts that count, under the config that the copy goes by."""

from __future__ import annotations

import pytest

from gossipkv.replication import clock
from gossipkv.replication.copy import Copy, Host, Identity, encode_state
from gossipkv.replication.feed import Told
from gossipkv.replication.levels import Levels

NODES = {one: bytes([one]) for one in (1, 2, 3, 4)}


def levels(*, leaving=()):
    """Of a copy that has written 5 records, beside two slots, of which one moves from 3 to 4."""
    named = clock.named(clock.of([(1, 5)]), (1, 2, 3, 4))
    copy = Copy(7, Identity(b"table", 0, 1), encode_state(0, 1, named, named))
    slots = {1: 0, 2: 1, 3: 2, 4: 2}
    copy.adopts(1, [Host(one, NODES[one], slots[one], counts=one not in leaving, available=one != 4) for one in slots])
    return Levels(copy)


def confirm(levels, **counters):
    """Hosts have told of so many records."""
    for who, count in counters.items():
        told = Told(int(who[1:]), clock.of([(1, count)]), 1, can_take=True, available=True)
        levels.confirms(told)


def test_a_slot_has_confirmed_with_all_of_its_hosts():
    """A slot that moves counts when both ends have it; who leaves does not count."""
    moving, left = levels(), levels(leaving=(3,))
    for one in (moving, left):
        assert (one.reached("one"), one.reached("majority"), one.reached("all")) == (5, 0, 0)
        confirm(one, n4=2)
    assert (moving.reached("majority"), left.reached("majority")) == (0, 2)
    confirm(moving, n3=5)
    assert (moving.reached("majority"), moving.reached("all")) == (2, 0)
    confirm(moving, n2=3)
    assert (moving.reached("majority"), moving.reached("all")) == (3, 2)


@pytest.mark.parametrize(("nodes", "slots"), [((), 1), ((2,), 2), ((3,), 1), ((3, 4), 2), ((2, 3, 4), 3)])
def test_who_can_confirm(nodes, slots):
    """Slots all of whose hosts that count are connected."""
    assert levels().connected({NODES[one] for one in nodes}) == slots


def test_who_waits_is_called_once():
    """In the order of the writes, each when its level is reached."""
    one, called = levels(), []
    for counter in (2, 4):
        one.wait("majority", counter, lambda counter=counter: called.append(counter))
    one.wait("one", 5, lambda: called.append("one"))
    one.look()
    confirm(one, n2=3)
    confirm(one, n2=3)
    assert called == ["one", 2]
    confirm(one, n2=9)
    assert called == ["one", 2, 4]
