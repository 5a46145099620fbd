"""One space of names for datasets and tables: which of the two a name is at this node, and what the other is told.

A name is a dataset's where that was ever active, or anything of it is built (`dataset.database.Database.is_refused`);
else it is a table's where one of that name is known.  Nobody could take both into use: a table is not made beside a
dataset that the asked node knows, or that a member publishes, and a node builds nothing under the name of a table.
Where the two came about apart from each other, each node keeps what it had, at every start, refuses the other by name,
and says so in `status`.  Copies of a table that are refused by name go on being fed: other nodes answer from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.errors import WRITES_ARE, BadRequest, Conflict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gossipkv.dataset.library import Library
    from gossipkv.errors import Detail
    from gossipkv.table.rpc.dispatch import TableMethods
    from gossipkv.wire.rpc import Value


@final
class Names:
    """The names of datasets and tables."""

    def __init__(self, datasets: Library, tables: TableMethods, published: Callable[[], Iterable[str]]) -> None:
        """`published`: the names under which members publish datasets, those among them that may come back."""
        self._datasets = datasets
        self._tables = tables
        self._published = published

    def is_table(self, name: str) -> bool:
        """Whether a request for that name is for a table."""
        return not self._datasets.known(name) and self._tables.has(name)

    async def databases_with_others(self) -> list[Value]:
        """Return what the method `databases` answers where the tables of this node are closed."""
        return self.databases(await self._tables.tables_of_others())

    def databases(self, of_others: Iterable[dict[str, Value]] = ()) -> list[Value]:
        """Return what the method `databases` answers: each name once."""
        known = [*self._tables.tables(), *of_others]
        tables = [told for told in known if not self._datasets.known(str(told["name"]))]
        return [*self._datasets.databases(), *tables]

    def all(self) -> list[str]:
        """The names of all."""
        return [str(told["name"]) for told in self.databases() if isinstance(told, dict)]

    def with_disputes(self, told: Mapping[str, Mapping[str, Detail]]) -> dict[str, dict[str, Detail]]:
        """Return what is told of databases, with what is refused under their names in their `error`."""
        found = {name: {**entry} for name, entry in told.items()}
        for name, dispute in self._disputes(told).items():
            error = found[name].get("error")
            found[name]["error"] = f"{error}; {dispute}" if isinstance(error, str) else dispute
        return found

    def _disputes(self, names: Iterable[str]) -> dict[str, str]:
        """Of those of these names that both a dataset and a table have, what becomes of the two here, in words."""
        refused = {*self._datasets.refused()}
        found: dict[str, str] = {}
        for name in names:
            ways_out = (
                f"have the dataset published under another name, or drop the table (`gossipkv table drop {name}`)"
            )
            if name in refused:
                found[name] = (
                    f"a dataset has this name too, and is refused: the table {name} was here first; {ways_out}"
                )
            elif self._datasets.known(name) and self._tables.has(name):
                found[name] = (
                    f"a table has this name too, and is refused: the dataset {name} was here first; {ways_out}"
                )
        return found

    def check_free(self, name: str) -> None:
        """Refuse a name for a table that a dataset has.  Raises Conflict."""
        if self._datasets.known(name):
            where = "this node serves or sees"
        elif name in self._published() and not self._datasets.met(name):  # Else there is nothing of it any more.
            where = "members publish"
        else:
            return
        raise Conflict(
            f"{name} is the name of a dataset that {where}: name the table otherwise, since both share their names",
            {"database": name},
        )

    def check_not_refused(self, name: str) -> None:
        """Refuse to do anything for a dataset that gave way to a table.  Raises Conflict."""
        if name in self._datasets.refused():
            raise Conflict(self._disputes([name])[name], {"database": name})

    def check_takes_puts(self, name: str) -> None:
        """Refuse to write to a dataset.  Raises BadRequest."""
        if self._datasets.known(name):
            raise BadRequest(f"{name} is a dataset: {WRITES_ARE}", {"database": name})
