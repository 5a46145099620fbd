"""Datasets and tables share one space of names, through the methods of a node."""

from __future__ import annotations

import re

import pytest

from gossipkv.errors import WRITES_ARE, BadRequest, Conflict, UnknownMethod
from tests.conftest import ROOT
from tests.unit.node.made_up_node import MadeUpLibrary, Node
from tests.unit.table.made_up_tables import MadeUpTables


class Both(MadeUpTables):
    """Tables, one with the name of a dataset that is here and one with the name of a refused dataset."""

    def __init__(self) -> None:
        super().__init__()
        self.methods[b"create_table"] = lambda arguments: self.write(arguments.text("table"), arguments)

    def write(self, name: str, arguments: object) -> str:
        return f"{arguments.method} {name}"

    def has(self, name: str) -> bool:
        return name in {"orders", "db"}

    def tables(self) -> list[dict[str, object]]:
        return [{"name": name, "kind": "hash"} for name in ("orders", "db")]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    """Return a node with datasets `db` and `empty`, tables `db` and `orders`, and a refused dataset `orders`."""
    monkeypatch.setattr("tests.unit.node.made_up_node.MadeUpTables", Both)
    monkeypatch.setattr(MadeUpLibrary, "refused", lambda _self: ["orders"])
    return Node()


def test_a_table_is_not_made_beside_a_dataset(node: Node) -> None:
    """A dataset counts if this node knows it or a member publishes it; other names are free."""
    for name, where in (("db", "this node serves or sees"), ("empty", "this node"), ("x", "other members publish")):
        with pytest.raises(Conflict, match=f"^{name} is the name of a dataset that {where}.*choose another name"):
            node.ask("create_table", name, {"kind": "hash"})
    for free in ("more", "gone"):  # Members report that nothing is left of the latter.
        assert node.ask("create_table", free, {"kind": "hash"}) == f"create_table {free}"


@pytest.mark.parametrize(
    ("method", "params"), [("put", [b"k", b"v"]), ("delete", [b"k"]), ("put_many", [[[b"k", b"v"]]])]
)
def test_a_dataset_takes_no_writes(node: Node, method: str, params: list[object]) -> None:
    """The error explains datasets and names an existing page; tables accept writes."""
    with pytest.raises(BadRequest, match=f"^db is a dataset: {re.escape(WRITES_ARE)}$"):
        node.ask(method, "db", *params)
    (page,) = re.findall(r"docs/[a-z/]+[.]md", WRITES_ARE)
    assert (ROOT / page).is_file()
    assert node.ask(method, "orders", *params) == f"{method} orders"


@pytest.mark.parametrize("method", ["set", "del"])
def test_words_of_other_stores(node: Node, method: str) -> None:
    """`set` and `del` are no methods here, and the error names the right ones."""
    with pytest.raises(UnknownMethod, match=f"this node has no method {method}: {re.escape(WRITES_ARE)}$"):
        node.ask(method, "db", b"k")


def test_each_name_is_listed_once(node: Node) -> None:
    assert {(told["name"], told["kind"]) for told in node.ask("databases")} == {
        ("db", "dataset"),
        ("empty", "dataset"),
        ("orders", "hash"),
    }
    assert len(node.ask("databases")) == 3


def test_status_names_what_is_refused(node: Node) -> None:
    """The entry says which of the two is served here, and gives advice."""
    told = node.ask("status")
    assert told["orders"]["error"].startswith("a dataset has the same name and is refused, since the table orders")
    assert told["db"]["error"].startswith("a table has the same name and is refused, since the dataset db")
    assert "`gossipkv table drop db`" in told["db"]["error"]
    assert "error" not in told["empty"]
    assert node.ask("status", {"database": "db"})["db"]["error"] == told["db"]["error"]


def test_a_table_that_only_may_exist_takes_no_name(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that has just come does not know the tables yet, and reports no dispute about its datasets."""
    monkeypatch.setattr(Both, "has", lambda _self, _name: True)
    assert "error" not in node.ask("status")["empty"]


def test_a_refused_dataset_is_not_refreshed(node: Node) -> None:
    """The error gives the reason; an unknown name stays unknown."""
    node.library.names = {"db": ["v1"]}
    with pytest.raises(Conflict, match=r"^a dataset has the same name and is refused, since the table orders"):
        node.ask("refresh", "orders")
    assert node.refusal("refresh", "nothing")[0] == "UNKNOWN_DATABASE"


def test_reads_go_to_what_has_the_name_here(node: Node) -> None:
    assert node.ask("get", "orders", b"k") == ["orders", b"token"]
    assert node.refusal("get", "db", b"k")[0] == "NOT_READY"
