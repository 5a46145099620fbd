"""An acceptor holds a value if its base, which a restart leaves, and the value's own transactions lead to it."""

from __future__ import annotations

from gossipkv.register.ballot import ZERO
from gossipkv.register.configuration import AcceptorId, Acceptors
from gossipkv.register.edits import EMPTY, MapValue, Transaction
from gossipkv.register.state import Base, RegisterMap, first_value

ACCEPTORS = Acceptors.of([AcceptorId(b"a" * 16, 1)])


def test_a_value_is_not_held_by_transactions_that_only_an_earlier_value_had():
    """The earlier value is overwritten by the acceptance, and the map after it is in memory alone."""
    base, line = Base(), []
    for number in range(4):
        base = base.after([(bytes((number,)), b"record")])
        line.append(Transaction(base.sequence, ((bytes((number,)), b"record"),), base.digest))
    register_map = RegisterMap()
    assert register_map.holds(MapValue(3, line[2].digest, 0, tuple(line[:3])))
    later = MapValue(4, line[3].digest, 3, tuple(line[2:]))
    assert not register_map.holds(later)
    assert register_map.follow(0, line[:3])
    assert register_map.holds(later)


def test_all_changes_of_a_round_keep_the_decided_transaction_in_the_tail():
    """An acceptor that has accepted it learns there that it is decided."""
    proposer, acceptor = RegisterMap(), RegisterMap()
    first = proposer.next_value(MapValue(), Base(digest=EMPTY), [(b"a", b"record")])
    assert acceptor.holds(first)
    assert proposer.decide(first, 0, 1)
    value = first
    for key in (b"b", b"c"):
        value = proposer.next_value(value, proposer.state_of(value), [(key, b"record")])
    assert [transaction.sequence for transaction in value.tail] == [1, 2, 3]
    assert acceptor.holds(value)


def test_a_map_that_was_made_before_its_acceptors_were_known_has_them():
    register_map = RegisterMap()
    value = first_value([(b"key", b"record")])
    assert register_map.holds(value)
    assert register_map.decide(value, 0, 0, ACCEPTORS, ZERO)
    assert register_map.decide(value, 0, 1)
    assert (register_map.base.place, register_map.base.acceptors) == ((0, 1), ACCEPTORS)
