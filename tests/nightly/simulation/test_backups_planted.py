"""Defects planted in backups and restores: the scenario `backups` finds each by the records of the restored cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgpack
import pytest
import trio

from gossipkv.backup.partition import Page, PartitionBuilder, PartitionReader
from gossipkv.backup.restore import Restore
from gossipkv.settings.databases import HIDDEN
from gossipkv.table.rpc.local_calls import LocalCalls
from tests.world.nodes.replay import WholePlan, run
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from gossipkv.backup.archive import SavedTable
    from gossipkv.wire.rpc import Value

SEEDS = range(8)

_page, _create, _call = PartitionReader._page, Restore._create, LocalCalls.call


async def without_log(self: PartitionReader, source: bytes, start: bytes, since: bytes) -> Page:
    page = await _page(self, source, start, since)
    return page._replace(records=msgpack.packb([])) if page.is_log else page


async def shown_at_once(self: Restore, name: str, table: SavedTable) -> bytes:
    id_ = await _create(self, name, table)
    await self.cluster.show(name, id_)
    await trio.sleep(1.0)
    return id_


async def by_name(self: LocalCalls, method: str, *params: Value) -> Value:
    """Put records of a restore into a table that has its name already."""
    if method == "put_many":
        params = (cast("str", params[0]).removeprefix(HIDDEN), *params[1:])
    return await _call(self, method, *params)


def nothing(*_: object) -> None:
    """Keep the keys that the replica has no more."""


PLANTED: dict[str, tuple[list[tuple[type, str, object]], str]] = {
    "the log behind the pages is not read": ([(PartitionReader, "_page", without_log)], "is restored as"),
    "a deleted key is kept": ([(PartitionBuilder, "_add_deleted", nothing)], "is restored as"),
    "a table is shown before its records are in": (
        [(Restore, "_create", shown_at_once), (LocalCalls, "call", by_name)],
        "before it is whole",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run fails with the expected report with one of a few seeds."""
    patches, report = PLANTED[name]
    for patch in patches:
        monkeypatch.setattr(*patch)
    said = []
    for seed in SEEDS:
        try:
            run(WholePlan("backups", 3, seed))
        except Violation as error:
            said.append(str(error))
            if report in said[-1]:
                return
    raise AssertionError(f"nobody says {report!r}: {said}")
