"""The reference has every method that may be called, and each option."""

from __future__ import annotations

from gossipkv.access.rights import METHODS as RIGHTS
from gossipkv.access.rights import Right
from tests.documented import explained_options, methods


def test_methods_are_those_with_a_right():
    """Each method but those between nodes is documented once."""
    between = {b"hello", b"gossip"}
    granted = {name.decode() for name, right in RIGHTS.items() if right is not Right.PEER and name not in between}
    assert sorted(method.name for method in methods()) == sorted(granted)


def test_options_are_explained():
    """Each option has a line in a table, or a sentence at its method."""
    for method in methods():
        own = {name for name in method.options if f"`{name}`" in method.texts}
        assert {*method.options} - explained_options() - own - {"isolation_group", "weight"} == set(), method.name
