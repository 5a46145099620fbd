"""The table of methods has every method that may be called, and each option and link."""

from __future__ import annotations

from gossipkv.access.rights import METHODS as RIGHTS
from gossipkv.access.rights import Right
from gossipkv.wire.method_table import METHODS, OPTIONS

ALL = [method for group in METHODS.values() for method in group]


def test_methods_are_those_with_a_right():
    """Each method but those between nodes stands in the table once."""
    between = {b"hello", b"gossip"}
    granted = {name.decode() for name, right in RIGHTS.items() if right is not Right.PEER and name not in between}
    assert sorted(method.name for method in ALL) == sorted(granted)


def test_options_are_explained():
    """Each option has a line in a table, or a sentence at its method."""
    explained = {name for options in OPTIONS.values() for option in options for name in option.names.split(", ")}
    for method in ALL:
        own = {name for name in method.options if f"`{name}`" in method.effect or f"`{name}`" in method.result}
        assert {*method.options} - explained - own - {"isolation_group", "weight"} == set(), method.name
