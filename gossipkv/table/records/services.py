"""The objects that all requests about records share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.table.records.router import Router
    from gossipkv.table.records.token_compaction import TokenCompactor
    from gossipkv.table.service import TableService
    from gossipkv.table.session.readiness import ReplicaReadiness


@final
@dataclass(slots=True, eq=False)
class RecordServices:
    """The tables of this node, the way to the hosts of partitions, the sessions, and the limits of requests."""

    service: TableService
    routing: Router
    readiness: ReplicaReadiness
    tokens: TokenCompactor
    name_of: Callable[[bytes], str]
    stage_s: float  # A read's time for each host.
    most_key: int
    most_value: int
    scan_limit: int
