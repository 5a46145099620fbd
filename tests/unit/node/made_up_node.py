"""A node with a fake library and cluster, whose methods are asked through its core."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgpack
import trio

from gossipkv.errors import Corrupt, Unavailable
from gossipkv.node.cluster_methods import ClusterMethods
from gossipkv.node.data_methods import DataMethods
from gossipkv.node.info import OF_EACH_PUMP, Info, Measures, NodeInfo
from gossipkv.node.methods import Handlers
from gossipkv.node.names import Names
from gossipkv.node.peers.hello import Hello
from gossipkv.node.report_methods import ReportMethods
from gossipkv.protocol import PROTOCOL_MAX
from gossipkv.serving._serving import ProvenResult, Refusal
from gossipkv.serving.published import publish
from gossipkv.serving.reads import Reads
from gossipkv.settings.serving import ServingSettings
from gossipkv.wire import rpc
from gossipkv.wire.latency import LatencyHistogram
from gossipkv.wire.results import DeferredResult, Later
from tests.unit.access.callers import STRANGER, open_access
from tests.unit.node.no_verdicts import NoVerdicts
from tests.unit.table.fake_store import NoTables
from tests.unit.table.made_up_tables import MadeUpTables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.errors import Detail
    from gossipkv.node.peers.proof import Prover
    from gossipkv.wire.rpc import Value
    from tests.unit.serving.driven import BuiltVersion

RECORDS = {b"key%02d" % number: b"value%d" % number for number in range(50)}


@dataclass
class MadeUpLibrary:
    """A library of names and versions."""

    names: dict[str, list[str]] = field(default_factory=lambda: {"db": ["v1"], "empty": []})
    reported: list[tuple[str, str, Corrupt]] = field(default_factory=list)
    failure: Exception | None = None
    told: Detail = 0.5
    local: list[bool] = field(default_factory=list)  # The view of each status: local or not.
    bitmaps: list[bool] = field(default_factory=list)  # The flag of each status.

    def met(self, database: str) -> bool:
        return database == "gone" or self.known(database)

    def known(self, database: str) -> bool:
        return database in self.names

    joining = bool  # Nothing joins.
    refused = list  # Nothing is refused.
    residency = dict  # Nothing is resident.

    def status(
        self,
        database: str | None = None,
        *,
        local: bool = True,
        bitmaps: bool = False,
        may_read: Callable[[str], bool] = bool,
    ) -> dict[str, Detail]:
        assert all(may_read(name) for name in self.names)
        self.local.append(local)
        self.bitmaps.append(bitmaps)
        return {name: {"done": self.told} for name in self.names if database in {None, name}}

    def unready(self, database: str) -> str:
        return f"half of {database} is there"

    def coming(self, database: str) -> bool:
        return database in self.names

    def damaged(self, database: str, version: str, error: Corrupt) -> None:
        self.reported.append((database, version, error))

    def databases(self) -> list[Detail]:
        return [{"name": name, "kind": "dataset"} for name in self.names]

    def by_database(self) -> dict[str, dict[str, Detail]]:
        """Return the databases, each with its first version as the active one."""
        return {name: {"version": versions[0] if versions else None} for name, versions in self.names.items()}

    def counters(self) -> dict[str, int]:
        return {"scrubbed_versions": 3}

    def trouble(self) -> str | None:
        return None

    def source(self) -> dict[str, Detail]:
        return {"root": "/srv/datasets", "require_success_file": True}

    async def rescan(self, database: str | None = None) -> dict[str, list[str]]:
        if self.failure is not None:
            raise self.failure
        return {name: versions for name, versions in self.names.items() if versions and database in {None, name}}


class MadeUpCluster:
    """A fake of a node's knowledge about others."""

    epoch = 7
    shard_id = "3"
    protocol = 1
    hello = Hello(PROTOCOL_MAX, b"c" * 8, b"u" * 16, 7, 0xABC, 2)
    prover: Prover | None = None

    def __init__(self) -> None:
        self.is_isolated, self.keys_below = False, 1
        self.trouble: str | None = None
        self.silence: str | None = None
        self.asked: list[object] = []

    def publish_error(self) -> str | None:
        return self.trouble

    def isolated(self) -> bool:
        return self.is_isolated

    def members_by_state(self) -> dict[str, int]:
        return {"alive": 0, "left": 1}

    def claimed_twice(self) -> list[str]:
        return ["b"]

    def counters(self) -> dict[str, int]:
        return {"gossip_dropped_foreign": 2}

    def reply(self, request: bytes) -> bytes:
        if not request:
            raise Unavailable("no request")
        return b"re: " + request

    def members(self) -> list[Detail]:
        return [{"node": "a", "address": "10.0.0.1:7070", "state": "left", "epoch": 2, "incarnation": 0}]

    def children(self, path: str, *, everything: bool) -> list[Detail]:
        self.asked.append((path, everything))
        return ["x", "y"]

    def keys(self, path: str, *, everything: bool) -> list[tuple[str, bytes]]:
        self.asked.append((path, everything))
        return [(f"k{number}", b"a") for number in range(self.keys_below)]

    def entries(self, path: str, keys: Sequence[tuple[str, bytes]], *, everything: bool) -> list[Detail]:
        return [{"name": name, "owner": "a", "value": b"\xff", "age_s": 1.5, "state": "alive"} for name, _ in keys]

    async def many_entries(self, path: str, keys: Sequence[tuple[str, bytes]], *, everything: bool) -> list[Detail]:
        await trio.lowlevel.checkpoint()
        return self.entries(path, keys, everything=everything)


def decoded(answer: bytes | Refusal | ProvenResult | DeferredResult) -> rpc.Response:
    """Return the answer as a client reads it, under the id 5."""
    answer = answer.body if isinstance(answer, ProvenResult) else answer
    assert isinstance(answer, bytes | Refusal)
    if isinstance(answer, Refusal):
        return rpc.decode_response(b"\x94\x01\x05" + answer.error + b"\xc0")
    return rpc.decode_response(b"\x94\x01\x05\xc0" + answer)


class Node:
    """Handlers over a fake library."""

    who = NodeInfo(version="1.2.3", cluster="c", node="n", resp=None)

    def __init__(self, *held: tuple[BuiltVersion, bool], max_frame: int = 1 << 20, scan_limit: int = 10) -> None:
        self.library = MadeUpLibrary()
        self.cluster = MadeUpCluster()
        self.counted: list[tuple[str, str, bool]] = []
        self.reads = Reads(
            self.library,
            self.count,
            ServingSettings(max_key=100, max_value=1 << 20, max_frame=max_frame, scan_limit=scan_limit),
            node="n",
        )
        self.reads.published = publish(held)
        tables, access = MadeUpTables(), open_access()
        names = Names(self.library, tables, lambda: {"x", "y", "gone"})
        reports = ReportMethods(
            self.library,
            tables,
            names,
            self.cluster,
            access,
            info=Info(self.library, NoTables(), self.who, self.cluster, self.measures()).to_map,
            report=NoVerdicts().report,
            verdicts=NoVerdicts(),
        )
        self.verdicts = NoVerdicts()
        data = DataMethods(self.library, self.reads, tables, names, cluster=self.cluster, verdicts=self.verdicts)
        cluster = ClusterMethods(
            self.cluster,
            tables,
            access,
            serves=lambda database, wire_id, asker: {"ready": wire_id + f"{database} {asker}".encode()},
        )
        methods = {**reports.methods, **data.methods, **cluster.methods}
        of_callers = {b"auth": access.auth, b"hello": cluster.hello, b"status": reports.status}
        self.handlers = Handlers(
            methods,
            of_callers,
            access,
            self.reads.unanswered,
            random.Random(1),
            writer=lambda *_: None,
        )

    def measures(self) -> Measures:
        latency = LatencyHistogram()
        latency.record(10_000, 3)
        return Measures(
            counters=lambda: {"gets": 3},
            pumps=lambda: [dict.fromkeys(OF_EACH_PUMP, 1)] * 2,
            unreadable=lambda: ["n3"],
            reads=lambda: self.reads.counts.with_those_of({"db": {"requests": 2, "hits": 1}}),
            errors=lambda: self.handlers.errors,
            latency=lambda: {"local": latency},
            usage=lambda: {"cpu_s": 1.5},
            directory=lambda: {"disk": {"free_bytes": 5}},
            certificate=lambda: None,
            ready=lambda: {"joined": True, "opened": True, "draining": False},
            uptime_s=lambda: 1.23456,
            records=lambda: {"copies": 3},
        )

    def count(self, database: str, version: str, *, by_name: bool) -> None:
        self.counted.append((database, version, by_name))

    def ask(self, method: str, *params: Value) -> Value:
        """Return the result of a method after any wait, or raise its error."""
        answer = decoded(self.answer(method, *params))
        if answer.error is not None:
            raise answer.error
        return answer.result

    def refusal(self, method: str, *params: Value) -> tuple[str, str]:
        error = decoded(self.answer(method, *params)).error
        assert error is not None
        return error.code, error.message

    def answer(self, method: str, *params: Value) -> bytes | Refusal:
        answer = self.handlers.answer(method.encode(), msgpack.packb(params), STRANGER)
        assert not isinstance(answer, Later)
        return (
            trio.run(self.handlers.complete, method.encode(), answer) if isinstance(answer, DeferredResult) else answer
        )
