"""Each extension is held to its stub and to an oracle in plain Python that a test compares it with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.ci.tidy.source import Source

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Proof:
    """Where an extension is compared with its oracle."""

    test: str
    oracle: str


PROOFS: dict[str, Proof] = {
    "gossipkv.serving._backlog": Proof("tests/unit/serving/test_backlog.py", "tests.oracle.backlog"),
    "gossipkv.serving._batches": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving._busy_poll": Proof("tests/unit/serving/test_busy_poll.py", "tests.oracle.busy_poll"),
    "gossipkv.serving._cold_pages": Proof("tests/unit/serving/test_cold_reads_slow.py", "tests.oracle.scan"),
    "gossipkv.serving._connections": Proof("tests/unit/serving/connection_machine.py", "tests.oracle.connections"),
    "tests.world._driver": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving._asking": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving._crew": Proof("tests/unit/serving/connection_machine.py", "tests.oracle.connections"),
    "gossipkv.serving._turn": Proof("tests/unit/serving/test_turn_slow.py", "tests.oracle.turn"),
    "gossipkv.serving._forwarded_get": Proof(
        "tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"
    ),
    "gossipkv.serving._forward_report": Proof(
        "tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"
    ),
    "gossipkv.serving._peer_answers": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving._questions": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving._reasons": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving._forwarded_batch": Proof(
        "tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"
    ),
    "gossipkv.serving._forwarded_parts": Proof(
        "tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"
    ),
    "gossipkv.serving._cold_reads": Proof("tests/unit/serving/test_cold_reads_slow.py", "tests.oracle.scan"),
    "gossipkv.serving._core": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving._intake": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving._resp_answers": Proof("tests/unit/serving/test_resp.py", "tests.oracle.resp"),
    "gossipkv.serving._resp_commands": Proof("tests/unit/serving/test_resp.py", "tests.oracle.resp"),
    "gossipkv.serving._resp_intake": Proof("tests/unit/serving/test_resp.py", "tests.oracle.resp"),
    "gossipkv.serving._http_answers": Proof("tests/unit/serving/http_judging.py", "tests.oracle.http"),
    "gossipkv.serving._http_intake": Proof("tests/unit/serving/http_judging.py", "tests.oracle.http"),
    "gossipkv.serving._http_requests": Proof("tests/unit/serving/http_judging.py", "tests.oracle.http"),
    "gossipkv.serving._overdue": Proof("tests/unit/serving/connection_machine.py", "tests.oracle.connections"),
    "gossipkv.serving._owed": Proof("tests/unit/serving/test_resp.py", "tests.oracle.resp"),
    "gossipkv.serving._handoff": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving._peers": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving._published": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving._relays": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving._requests": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving._routes": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving._scan_merge": Proof("tests/unit/serving/test_scan_merge.py", "tests.oracle.scan"),
    "gossipkv.serving._scan_page": Proof("tests/unit/serving/test_scan_page.py", "tests.oracle.scan"),
    "gossipkv.serving._scan_plan": Proof("tests/unit/serving/test_scans.py", "tests.oracle.scan"),
    "gossipkv.serving._scans": Proof("tests/unit/serving/test_scans.py", "tests.oracle.scan"),
    "gossipkv.serving._serving": Proof("tests/unit/serving/test_serving_slow.py", "tests.oracle.connection"),
    "gossipkv.serving._sockets": Proof("tests/unit/serving/test_serving_slow.py", "tests.oracle.connection"),
    "gossipkv.serving._tls": Proof("tests/unit/serving/test_tls_slow.py", "tests.oracle.connection"),
    "gossipkv.serving._secured": Proof("tests/unit/serving/test_tls_slow.py", "tests.oracle.connection"),
    "gossipkv.serving._tunnels": Proof("tests/unit/serving/test_tunnels_slow.py", "tests.oracle.http"),
    "tests.world.nodes._streams": Proof("tests/unit/world/nodes/test_streams.py", "tests.oracle.connection"),
    "gossipkv.serving._transport": Proof("tests/unit/world/nodes/test_streams.py", "tests.oracle.connection"),
    "gossipkv.dataset.formats._columns": Proof("tests/unit/dataset/formats/test_columns.py", "tests.oracle.columns"),
    "gossipkv.dataset.formats._json_lines": Proof(
        "tests/unit/dataset/formats/test_json_lines.py", "tests.oracle.json_lines"
    ),
    "gossipkv.dataset.formats._json_text": Proof(
        "tests/unit/dataset/formats/test_json_lines.py", "tests.oracle.json_lines"
    ),
    "gossipkv.dataset.formats._lines": Proof(
        "tests/unit/dataset/formats/test_tab_separated.py", "tests.oracle.tab_separated"
    ),
    "gossipkv.dataset.formats._sequence_file": Proof(
        "tests/unit/dataset/formats/test_sequence_file.py", "tests.oracle.sequence_file"
    ),
    "gossipkv.dataset.formats._sorted_files": Proof(
        "tests/unit/dataset/formats/test_sorted_files.py", "tests.oracle.sorted_file"
    ),
    "gossipkv.dataset.formats._tab_separated": Proof(
        "tests/unit/dataset/formats/test_tab_separated.py", "tests.oracle.tab_separated"
    ),
    "gossipkv.client._requests": Proof("tests/unit/client/test_requests.py", "tests.oracle.deadlines"),
    "gossipkv.client._session": Proof("tests/unit/client/test_session.py", "tests.oracle.session"),
    "gossipkv.dataset.build._assigner": Proof("tests/unit/dataset/build/test_assigner.py", "tests.oracle.hashing"),
    "gossipkv.keyspace._hashing": Proof("tests/unit/keyspace/test_partitioner.py", "tests.oracle.hashing"),
    "gossipkv.wire._latency": Proof("tests/unit/wire/test_latency.py", "tests.oracle.histogram"),
    "gossipkv.loadtest._dialect": Proof("tests/unit/loadtest/test_dialect.py", "tests.oracle.load_answers"),
    "gossipkv.loadtest._generator": Proof("tests/unit/loadtest/test_dialect.py", "tests.oracle.load_answers"),
    "gossipkv.loadtest._http": Proof("tests/unit/loadtest/test_http.py", "tests.oracle.load_http"),
    "gossipkv.loadtest._keys": Proof("tests/unit/loadtest/test_keys.py", "tests.oracle.load_keys"),
    "gossipkv.loadtest._ledger": Proof("tests/unit/loadtest/test_truth_of_versions.py", "tests.oracle.load_truth"),
    "gossipkv.loadtest._records": Proof("tests/unit/loadtest/test_truth_of_versions.py", "tests.oracle.load_truth"),
    "gossipkv.loadtest._redis": Proof("tests/unit/loadtest/test_redis.py", "tests.oracle.load_redis"),
    "gossipkv.loadtest._rpc": Proof("tests/unit/loadtest/test_dialect.py", "tests.oracle.load_answers"),
    "gossipkv.loadtest._schedule": Proof("tests/unit/loadtest/test_schedule.py", "tests.oracle.load_schedule"),
    "gossipkv.replication._entry": Proof("tests/unit/replication/test_entry.py", "tests.oracle.entry"),
    "gossipkv.replication._record": Proof("tests/unit/replication/test_record.py", "tests.oracle.record"),
    "gossipkv.replication._vector_clock": Proof("tests/unit/replication/test_clock.py", "tests.oracle.vector_clock"),
    "gossipkv.storage._batch": Proof("tests/unit/storage/test_batch.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._checksum": Proof("tests/unit/storage/test_checksum.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._compression": Proof("tests/unit/storage/test_sorted_file.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._format": Proof("tests/unit/storage/test_format.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._index_builder": Proof("tests/unit/storage/test_index_builder.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._mapped_file": Proof("tests/unit/storage/test_sorted_file_life.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._page_writer": Proof("tests/unit/storage/test_builder.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._pager": Proof("tests/unit/serving/test_cold_reads_slow.py", "tests.oracle.scan"),
    "gossipkv.storage._radix": Proof("tests/unit/storage/test_record_sorter.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._record_sorter": Proof("tests/unit/storage/test_record_sorter.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._records": Proof("tests/unit/storage/test_sorted_file.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._runs": Proof("tests/unit/storage/test_runs.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._scan": Proof("tests/unit/storage/test_sorted_file.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._scratch": Proof("tests/unit/storage/test_record_sorter.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._sigbus": Proof("tests/unit/storage/test_sigbus.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._sorted_file": Proof("tests/unit/storage/test_sorted_file.py", "tests.oracle.sorted_file"),
    "gossipkv.storage._sorted_file_writer": Proof("tests/unit/storage/test_builder.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.engine._committer": Proof("tests/unit/storage/engine/test_committer.py", "tests.oracle.log"),
    "gossipkv.storage.engine._log": Proof("tests/unit/storage/engine/test_log.py", "tests.oracle.log"),
    "gossipkv.storage.engine._memtable": Proof("tests/unit/storage/engine/test_memtable.py", "tests.oracle.memtable"),
    "gossipkv.storage.engine._merge": Proof("tests/unit/storage/engine/test_merge.py", "tests.oracle.merge"),
    "gossipkv.storage.engine._merged_scan": Proof("tests/unit/storage/engine/test_view.py", "tests.oracle.view"),
    "gossipkv.storage.engine._view": Proof("tests/unit/storage/engine/test_view.py", "tests.oracle.view"),
    "gossipkv.storage.engine._writer": Proof("tests/unit/storage/engine/test_golden_store.py", "tests.oracle.log"),
    "gossipkv.wire._frames": Proof("tests/unit/wire/test_frames.py", "tests.oracle.msgpack_scanner"),
    "gossipkv.wire._message": Proof("tests/unit/wire/test_message.py", "tests.oracle.messagepack"),
}


def extensions(root: Path) -> dict[str, Path]:
    """Every extension of the tree, by its dotted name."""
    return {Source(root, path).module: path for path in sorted((root / "src_ext").rglob("*.pyx"))}


def check_stubs(root: Path) -> list[str]:
    """Extensions without a stub beside their package, and stubs without an extension."""
    found = extensions(root)
    stubs = {Source(root, path).module for below in ("gossipkv", "tests") for path in (root / below).rglob("_*.pyi")}
    wrong = [f"{name}: misnamed, an extension starts with `_`" for name in found if name.split(".")[-1][0] != "_"]
    wrong += [f"{name}: no stub {name.replace('.', '/')}.pyi" for name in sorted(found.keys() - stubs)]
    return wrong + [f"{name}: a stub without an extension" for name in sorted(stubs - found.keys())]


def check_proofs(root: Path, proofs: dict[str, Proof]) -> list[str]:
    """Extensions that the table does not prove, and lines of the table that do not hold."""
    found = extensions(root)
    wrong = [f"{name}: no line in the table of proofs" for name in sorted(found.keys() - proofs.keys())]
    wrong += [f"{name}: in the table of proofs, but no extension" for name in sorted(proofs.keys() - found.keys())]
    for name, proof in proofs.items():
        oracle = root / f"{proof.oracle.replace('.', '/')}.py"
        test = root / proof.test
        if not oracle.is_file():
            wrong.append(f"{name}: its oracle {proof.oracle} does not exist")
        elif any(found.module.split(".")[0] == "gossipkv" for found in Source(root, oracle).imports):
            wrong.append(f"{name}: its oracle {proof.oracle} imports what it is to judge")
        if not test.is_file():
            wrong.append(f"{name}: its test {proof.test} does not exist")
        elif proof.oracle not in {part for item in Source(root, test).imports for part in (item.module, item.path)}:
            wrong.append(f"{name}: {proof.test} does not import {proof.oracle}")
    return wrong
