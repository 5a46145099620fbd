"""The names that datasets and tables share: which of the two a name stands for at this node.

A name is a dataset's if that dataset was ever active here, or is built (`dataset.database.Database.is_refused`).
Otherwise it is a table's if a table of that name is known. Normally no name has both. No table is created beside a
dataset that the asked node knows or a member publishes, and no node builds a dataset under the name of a table.

Both can exist if they were created apart from each other. Then each node keeps its first one across starts, refuses
the other by name, and says so in `status`. Replicas of a table that is refused by name are still fed, since other
nodes answer from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.errors import WRITES_ARE, BadRequest, Conflict, UnknownDatabase
from gossipkv.settings.databases import HIDDEN, NAMES

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
        """Begin; `published` gives the names under which members publish datasets, also members that may come back."""
        self._datasets = datasets
        self._tables = tables
        self._published = published

    def is_table(self, name: str) -> bool:
        """Return True if a request for that name is for a table."""
        return not self._datasets.known(name) and self._tables.has(name)

    async def databases_with_others(self) -> list[Value]:
        """Return the answer of the method `databases` on a node whose own tables are closed."""
        return self.databases(await self._tables.tables_of_others())

    def databases(self, of_others: Iterable[dict[str, Value]] = ()) -> list[Value]:
        """Return the answer of the method `databases`: each name once."""
        tables = [*self._tables.tables(), *of_others]
        shown = [table for table in tables if not self._datasets.known(str(table["name"]))]
        return [*self._datasets.databases(), *shown]

    def all(self) -> list[str]:
        """Return the names of all datasets and tables."""
        return [str(entry["name"]) for entry in self.databases() if isinstance(entry, dict)]

    def with_disputes(self, entries: Mapping[str, Mapping[str, Detail]]) -> dict[str, dict[str, Detail]]:
        """Return the entries of databases; the `error` of a name that both kinds have also says which is refused."""
        found = {name: {**entry} for name, entry in entries.items()}
        for name, dispute in self._disputes(entries).items():
            error = found[name].get("error")
            found[name]["error"] = f"{error}; {dispute}" if isinstance(error, str) else dispute
        return found

    def _disputes(self, names: Iterable[str]) -> dict[str, str]:
        """Return a sentence for each of these names that a dataset and a table share, with the remedy."""
        refused = {*self._datasets.refused()}
        tables = self._tables.names()  # Not those that may exist, as for `has`.
        found: dict[str, str] = {}
        for name in names:
            if name in refused:
                other, first = "dataset", "table"
            elif self._datasets.known(name) and name in tables:
                other, first = "table", "dataset"
            else:
                continue
            found[name] = (
                f"a {other} has the same name and is refused, since the {first} {name} was here first; publish the "
                f"dataset under another name, or drop the table (`gossipkv table drop {name}`)"
            )
        return found

    def check_free(self, name: str) -> None:
        """Refuse to name a table like a dataset or a hidden table. Raises Conflict, BadRequest."""
        if name.startswith(HIDDEN):
            raise BadRequest(f"{name!r} cannot be a table's name: {NAMES}")
        if self._datasets.known(name):
            where = "this node serves or sees at its source"
        elif name in self._published() and not self._datasets.met(name):
            # A dataset that this node had and does not know any more is gone, even if a member still publishes it.
            where = "other members publish"
        else:
            return
        raise Conflict(
            f"{name} is the name of a dataset that {where}: choose another name, since tables and "
            "datasets share their names",
            {"database": name},
        )

    def check_not_refused(self, name: str) -> None:
        """Refuse every request for a dataset that gave way to a table. Raises Conflict."""
        if name in self._datasets.refused():
            raise Conflict(self._disputes([name])[name], {"database": name})

    def check_named(self, name: str | None) -> None:
        """Refuse a name of neither a dataset nor a table; None is accepted.  Raises UnknownDatabase, Conflict."""
        if name is not None and not self._tables.has(name):
            self.check_known(name)

    def check_known(self, name: str) -> None:
        """Refuse a name of no dataset.  Raises UnknownDatabase, Conflict."""
        if not self._datasets.known(name):
            self.check_not_refused(name)
            raise UnknownDatabase(f"no database {name} here or at the source", {"database": name})

    def check_takes_puts(self, name: str) -> None:
        """Refuse to write to a dataset. Raises BadRequest."""
        if self._datasets.known(name):
            raise BadRequest(f"{name} is a dataset: {WRITES_ARE}", {"database": name})
