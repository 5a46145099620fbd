"""The methods about tables, loaded when one of them is called: a node without tables does without."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gossipkv.table.deciding import Deciding
    from gossipkv.table.methods import TableMethods
    from gossipkv.wire.results import Waiting
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value

NAMES: Final = (
    b"create_table",
    b"drop_table",
    b"metadata_status",
    b"metadata_join",
    b"metadata_leave",
    b"metadata_force",
    b"register",
    b"metadata_hold",
    b"metadata_pages",
    b"metadata_transact",
    b"metadata_outcome",
    b"metadata_known",
    b"metadata_invite",
    b"metadata_discover",
)


@final
class LateTableMethods:
    """What `table_methods.TableMethods` is, from the first call on."""

    def __init__(self, deciding: Deciding, random: Random, *, replication: int) -> None:
        """`replication`: of tables that do not say."""
        self._deciding = deciding
        self._random = random
        self._replication = replication
        self._loaded: TableMethods | None = None
        self.methods: dict[bytes, Callable[[Arguments], Value | Waiting]] = {
            name: partial(self._answer, name) for name in NAMES
        }

    def tables(self) -> list[Value]:
        """Return what `databases` tells of tables."""
        return [] if self._deciding.catalogue is None else self._whole().tables()

    def partition_map(self, name: str, start: bytes | None, limit: int | None) -> Value:
        """Return what `partition_map` answers of a table.  Raises UnknownDatabase, NotReady."""
        self._deciding.taking_part()
        return self._whole().partition_map(name, start, limit)

    def _answer(self, name: bytes, arguments: Arguments) -> Value | Waiting:
        return self._whole().methods[name](arguments)

    def _whole(self) -> TableMethods:
        if self._loaded is None:
            from gossipkv.table.methods import TableMethods  # noqa: PLC0415  # See the module.

            self._loaded = TableMethods(self._deciding, self._random, replication=self._replication)
        return self._loaded
