"""The end of a map reaches nodes that know nothing else of it."""

from __future__ import annotations

import pytest

from gossipkv.errors import ProtocolError
from gossipkv.register.ballot import Ballot
from gossipkv.register.configuration import AcceptorId, Acceptors
from gossipkv.register.edits import EMPTY, MapValue
from gossipkv.register.maps import news_of
from gossipkv.register.state import RegisterMap, read_map

ACCEPTORS = Acceptors.of([AcceptorId(b"a" * 16, 1)])
BALLOT = Ballot(0, 0, 5, 1)


def test_an_end_has_the_acceptors_of_its_value():
    """A node that decides the end without the map before shows its acceptors, also after a restart."""
    map_ = RegisterMap()
    value = MapValue().ended_by(b"drop")
    assert map_.decide(value, 0, value.sequence, ACCEPTORS, BALLOT)
    assert (map_.base.ended, map_.base.acceptors, map_.base.shown) == (True, ACCEPTORS, BALLOT)
    read, strange = read_map((key, record) for key, record in sorted(map_.records().items()))
    assert read.base._replace(entries=map_.base.entries) == map_.base
    assert strange == []


def test_news_without_acceptors_is_refused():
    with pytest.raises(ProtocolError):
        news_of([b"r" * 16, 0, 1, EMPTY, True, None, None, None])
