"""The catalogue's records and operations keep names unique, also for concurrent creators."""

from __future__ import annotations

import pytest

from gossipkv.errors import ProtocolError
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.metadata.packing import pack
from gossipkv.register.metadata.partitions import INVALID
from gossipkv.register.metadata.tables import (
    EXISTS,
    NODE,
    OPERATIONS,
    TOO_FEW,
    NamedNode,
    NamedTable,
    decode_named,
    decode_node,
)
from tests.unit.register.metadata.maps import HeldMap

ACCEPTORS = ((b"a" * 16, 1), (b"b" * 16, 2))
ONE, OTHER = b"1" * 16, b"2" * 16
TABLE = NamedTable(ONE, "hash", tuple(AcceptorId(*one) for one in ACCEPTORS), 5)


class Catalogue(HeldMap):
    """A catalogue, driven by transactions of a few operations."""

    def __init__(self):
        super().__init__(OPERATIONS)

    def run(self, *told, base=None):
        """Judge these in one transaction, each based on the head; return codes or outcomes."""
        return self.codes(*[self.operation(name, *argument, base=base) for name, *argument in told])

    @property
    def tables(self):
        return {key: decode_named(record) for key, record in self.scan() if key[:1] != NODE}

    @property
    def nodes(self):
        return {key[1:]: decode_node(record) for key, record in self.scan() if key[:1] == NODE}

    def scan(self):
        return [(entry.key, entry.record) for entry in self.view.scan()]


def added(name, id_):
    return ("add_table", name, id_, "hash", ACCEPTORS, 5)


def test_a_record_is_read_as_it_was_written():
    assert decode_named(TABLE.encode()) == TABLE


@pytest.mark.parametrize(
    "table",
    [
        TABLE._replace(id=b"short"), TABLE._replace(kind="other"), TABLE._replace(acceptors=()),
        TABLE._replace(config=-1),
        TABLE._replace(acceptors=TABLE.acceptors[::-1]), TABLE._replace(acceptors=((b"a", 1),)),
        TABLE._replace(config=True),
        TABLE[:3],
    ],
)  # fmt: skip
def test_what_is_no_table(table):
    """Fields that are missing, of another type or out of range are refused; so is another format."""
    with pytest.raises(ProtocolError):
        decode_named(pack((1, *table)))
    with pytest.raises(ProtocolError):
        decode_named(pack((2, *TABLE)))


def test_tables_come_and_go():
    """Repetitions are DONE; the old table's end does not touch a new table of the name."""
    catalogue = Catalogue()
    for _ in range(2):
        assert catalogue.run(added(b"t", ONE)) == ["DONE"]
        assert catalogue.tables == {b"t": TABLE}
    for _ in range(2):
        assert catalogue.run(("remove_table", b"t", ONE)) == ["DONE"]
        assert catalogue.tables == {}
    assert catalogue.run(added(b"t", OTHER)) == ["DONE"]
    assert catalogue.run(("remove_table", b"t", ONE)) == ["DONE"]
    assert catalogue.tables[b"t"].id == OTHER


def test_of_two_creators_one_gets_conflict():
    """The conflict occurs within a transaction and in the next; with the table in sight it is a refusal."""
    catalogue = Catalogue()
    assert catalogue.run(added(b"t", ONE), added(b"t", OTHER), added(b"u", OTHER)) == ["DONE", "CONFLICT", "DONE"]
    assert catalogue.run(added(b"t", OTHER), base=0) == ["CONFLICT"]
    assert catalogue.run(added(b"t", OTHER)) == [EXISTS]
    assert {name: one.id for name, one in catalogue.tables.items()} == {b"t": ONE, b"u": OTHER}


@pytest.mark.parametrize(
    "told",
    [
        added(b"", ONE), added(b"a b", ONE), added(b"\xff", ONE), added(b"n" * 201, ONE), added("t", ONE),
        added(b"t", b""),
        ("add_table", b"t", ONE, "hash", ACCEPTORS), ("add_table", b"t", ONE, "hash", None, 5), ("remove_table", b"t"),
        ("add_table", b"t", ONE, "hash", ACCEPTORS[::-1], 5), ("remove_table", "t", ONE), ("add_table",),
    ],
)  # fmt: skip
def test_what_is_refused(told):
    """Bad names and malformed arguments are refused."""
    catalogue = Catalogue()
    assert catalogue.run(told) == [INVALID]
    assert catalogue.tables == {}


def put_in(number, *, weight=1, replaced=None, stay=0):
    """Return the operation that adds or changes a node."""
    return ("set_node", uuid(number), f"n{number}", "rack", weight, replaced, stay)


def uuid(number):
    return b"%016d" % number


def test_nodes_come_and_go():
    """Repetitions are DONE, a lost node stays lost, and a table of any name is independent of nodes."""
    catalogue = Catalogue()
    catalogue.run(added(b"t", ONE), put_in(1), put_in(2))
    for _ in range(2):
        assert catalogue.run(put_in(1, weight=3)) == ["DONE"]
        assert catalogue.nodes == {uuid(1): NamedNode("n1", "rack", 3), uuid(2): NamedNode("n2", "rack", 1)}
    assert catalogue.run(("remove_node", uuid(1), False, 2)) == [TOO_FEW]
    for is_gone, weight in ((False, 0), (False, 0), (True, None), (False, None)):
        assert catalogue.run(("remove_node", uuid(1), is_gone, 1)) == ["DONE"]
        assert catalogue.nodes[uuid(1)] == NamedNode("n1", "rack", weight)
    assert catalogue.run(("remove_node", uuid(2), False, 1)) == [TOO_FEW]
    assert catalogue.run(("remove_node", uuid(9), True, 0)) == ["DONE"]
    assert catalogue.run(put_in(1)) == ["DONE"]
    assert {node.weight for node in catalogue.nodes.values()} == {1}
    assert catalogue.tables == {b"t": TABLE}


def test_a_node_takes_the_place_of_another():
    """A replacement is one step, so the number of nodes stays."""
    catalogue = Catalogue()
    catalogue.run(put_in(1), put_in(2))
    for is_gone, weight in ((False, 0), (True, None)):
        for _ in range(2):
            assert catalogue.run(put_in(3, replaced=(uuid(1), is_gone), stay=2)) == ["DONE"]
            assert {int(key): node.weight for key, node in catalogue.nodes.items()} == {1: weight, 2: 1, 3: 1}
    assert catalogue.run(put_in(2, replaced=(uuid(3), False), stay=2)) == [TOO_FEW]
    assert catalogue.run(put_in(2, replaced=(uuid(3), False), stay=1)) == ["DONE"]


def test_two_who_take_the_last_but_one_out():
    """Each removal saw enough nodes, but both together leave too few, so the second conflicts."""
    catalogue = Catalogue()
    catalogue.run(put_in(1))
    catalogue.run(put_in(2))
    catalogue.run(put_in(3))
    base = catalogue.config
    assert catalogue.run(("remove_node", uuid(1), False, 2), base=base) == ["DONE"]
    assert catalogue.run(("remove_node", uuid(2), False, 2), base=base) == ["CONFLICT"]
    assert catalogue.run(put_in(4, replaced=(uuid(2), True), stay=2), base=base) == ["CONFLICT"]
    assert catalogue.run(("remove_node", uuid(2), True, 2)) == [TOO_FEW]


@pytest.mark.parametrize(
    "told",
    [
        ("set_node",), ("set_node", b"short", "n", "", 1, None, 0), ("set_node", ONE, "n", "", 1001, None, 0),
        ("set_node", ONE, "n", "", -1, None, 0), ("set_node", ONE, "n", "", True, None, 0),
        ("set_node", ONE, "n", "", 0, None, 0), ("set_node", ONE, "n", "", None, None, 0),
        ("set_node", ONE, "n" * 201, "", 1, None, 0), ("set_node", ONE, 1, "", 1, None, 0),
        ("set_node", ONE, "n", "", 1, (ONE, True), 0), ("set_node", ONE, "n", "", 1, ONE, 0),
        ("set_node", ONE, "n", "", 1, None, -1), ("remove_node", "n", True, 0), ("remove_node", ONE, True, None),
        ("remove_node", ONE, 1, 0),
    ],
)  # fmt: skip
def test_what_is_no_node(told):
    """Fields that are missing, of another type or out of range are refused."""
    catalogue = Catalogue()
    catalogue.run(put_in(1))
    assert catalogue.run(told) == [INVALID]
    assert [*catalogue.nodes] == [uuid(1)]
