"""Each extension has a stub, and each of its files a test against an oracle in plain Python.

The name of an extension's file begins with `_`: the file has code itself, or includes parts without `_`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.ci.tidy.source import Source

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Proof:
    """The test that compares a file of an extension with its oracle."""

    test: str
    oracle: str


PROOFS: dict[str, Proof] = {
    "gossipkv.serving.request.backlog": Proof("tests/unit/serving/test_backlog.py", "tests.oracle.backlog"),
    "gossipkv.serving.published.batches": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving.loop.busy_poll": Proof("tests/unit/serving/test_busy_poll.py", "tests.oracle.busy_poll"),
    "gossipkv.serving.published.cold_pages": Proof("tests/unit/serving/test_cold_reads_slow.py", "tests.oracle.scan"),
    "gossipkv.serving.connection.connections": Proof(
        "tests/unit/serving/connection_machine.py", "tests.oracle.connections"
    ),
    "tests.world.driver": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving.peer.relay_driver": Proof(
        "tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"
    ),
    "gossipkv.serving.loop.loop_group": Proof("tests/unit/serving/connection_machine.py", "tests.oracle.connections"),
    "gossipkv.serving.loop.core_lock": Proof("tests/unit/serving/test_core_lock_slow.py", "tests.oracle.core_lock"),
    "gossipkv.serving.forward.get": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving.forward.report": Proof(
        "tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"
    ),
    "gossipkv.serving.peer.answers": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving.peer.requests": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving.peer.wait_reasons": Proof(
        "tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"
    ),
    "gossipkv.serving.forward.batch": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving.forward.parts": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving.request.gathered_writes": Proof("tests/unit/table/test_gathered.py", "tests.oracle.token"),
    "gossipkv.serving.published.table_gets": Proof("tests/unit/table/test_calm.py", "tests.oracle.token"),
    "gossipkv.serving.published.cold_gets": Proof("tests/unit/serving/test_cold_reads_slow.py", "tests.oracle.scan"),
    "gossipkv.serving.loop.core": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving.request.intake": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving.resp.answers": Proof("tests/unit/serving/test_resp.py", "tests.oracle.resp"),
    "gossipkv.serving.resp.commands": Proof("tests/unit/serving/test_resp.py", "tests.oracle.resp"),
    "gossipkv.serving.resp.intake": Proof("tests/unit/serving/test_resp.py", "tests.oracle.resp"),
    "gossipkv.serving.resp.reads": Proof("tests/unit/serving/test_resp.py", "tests.oracle.resp"),
    "gossipkv.serving.resp.session": Proof("tests/unit/serving/test_resp_session.py", "tests.oracle.token"),
    "gossipkv.serving.http.answers": Proof("tests/unit/serving/http_judging.py", "tests.oracle.http"),
    "gossipkv.serving.http.intake": Proof("tests/unit/serving/http_judging.py", "tests.oracle.http"),
    "gossipkv.serving.http.requests": Proof("tests/unit/serving/http_judging.py", "tests.oracle.http"),
    "gossipkv.serving.connection.timeouts": Proof(
        "tests/unit/serving/connection_machine.py", "tests.oracle.connections"
    ),
    "gossipkv.serving.connection.reply_queue": Proof("tests/unit/serving/test_resp.py", "tests.oracle.resp"),
    "gossipkv.serving.request.handoff": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving.peer.peers": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving.published.table": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving.peer.relays": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving.request.requests": Proof("tests/nightly/fuzz/test_frames_core.py", "tests.oracle.connection"),
    "gossipkv.serving.peer.routes": Proof("tests/unit/serving/test_forwarding_machine_slow.py", "tests.oracle.relay"),
    "gossipkv.serving.scan.merge": Proof("tests/unit/serving/test_scan_merge.py", "tests.oracle.scan"),
    "gossipkv.serving.scan.page": Proof("tests/unit/serving/test_scan_page.py", "tests.oracle.scan"),
    "gossipkv.serving.scan.plan": Proof("tests/unit/serving/test_scans.py", "tests.oracle.scan"),
    "gossipkv.serving.scan.scans": Proof("tests/unit/serving/test_scans.py", "tests.oracle.scan"),
    "gossipkv.serving.scan.table_pages": Proof("tests/unit/table/test_calm.py", "tests.oracle.token"),
    "gossipkv.serving.loop.loop": Proof("tests/unit/serving/test_serving_slow.py", "tests.oracle.connection"),
    "gossipkv.serving.transport.sockets": Proof("tests/unit/serving/test_serving_slow.py", "tests.oracle.connection"),
    "gossipkv.serving.tls.openssl": Proof("tests/unit/serving/test_tls_slow.py", "tests.oracle.connection"),
    "gossipkv.serving.tls.handshakes": Proof("tests/unit/serving/test_tls_slow.py", "tests.oracle.connection"),
    "gossipkv.serving.tls.signers": Proof("tests/unit/serving/test_tls_slow.py", "tests.oracle.connection"),
    "gossipkv.serving.tls.connections": Proof("tests/unit/serving/test_tls_slow.py", "tests.oracle.connection"),
    "gossipkv.serving.tls.tunnels": Proof("tests/unit/serving/test_tunnels_slow.py", "tests.oracle.http"),
    "tests.world.nodes.streams": Proof("tests/unit/world/nodes/test_streams.py", "tests.oracle.connection"),
    "gossipkv.serving.transport.interface": Proof("tests/unit/world/nodes/test_streams.py", "tests.oracle.connection"),
    "gossipkv.dataset.formats.columns": Proof("tests/unit/dataset/formats/test_columns.py", "tests.oracle.columns"),
    "gossipkv.dataset.formats.rows": Proof(
        "tests/unit/dataset/formats/columns/test_arrow_rows.py", "tests.oracle.rows"
    ),
    "gossipkv.dataset.formats.csv_rows": Proof(
        "tests/unit/dataset/formats/columns/test_column_formats.py", "tests.oracle.csv_rows"
    ),
    "gossipkv.dataset.formats.json_lines": Proof(
        "tests/unit/dataset/formats/test_json_lines.py", "tests.oracle.json_lines"
    ),
    "gossipkv.dataset.formats.json_text": Proof(
        "tests/unit/dataset/formats/test_json_lines.py", "tests.oracle.json_lines"
    ),
    "gossipkv.dataset.formats.lines": Proof(
        "tests/unit/dataset/formats/test_tab_separated.py", "tests.oracle.tab_separated"
    ),
    "gossipkv.dataset.formats.sequence_file": Proof(
        "tests/unit/dataset/formats/test_sequence_file.py", "tests.oracle.sequence_file"
    ),
    "gossipkv.dataset.formats.sorted_files": Proof(
        "tests/unit/dataset/formats/test_sorted_files.py", "tests.oracle.sorted_file"
    ),
    "gossipkv.dataset.formats.tab_separated": Proof(
        "tests/unit/dataset/formats/test_tab_separated.py", "tests.oracle.tab_separated"
    ),
    "gossipkv.client.arrow": Proof("tests/unit/client/test_session.py", "tests.oracle.session"),
    "gossipkv.client.requests": Proof("tests/unit/client/test_requests.py", "tests.oracle.deadlines"),
    "gossipkv.client.session": Proof("tests/unit/client/test_session.py", "tests.oracle.session"),
    "gossipkv.dataset.build._assigner": Proof("tests/unit/dataset/build/test_assigner.py", "tests.oracle.hashing"),
    "gossipkv.keyspace.hashing": Proof("tests/unit/keyspace/test_partitioner.py", "tests.oracle.hashing"),
    "gossipkv.keyspace.key_index": Proof("tests/unit/keyspace/test_key_index.py", "tests.oracle.key_index"),
    "gossipkv.wire.hosts": Proof("tests/unit/wire/test_hosts.py", "tests.oracle.hosts"),
    "gossipkv.wire.latency": Proof("tests/unit/wire/test_latency.py", "tests.oracle.histogram"),
    "gossipkv.loadtest.dialect": Proof("tests/unit/loadtest/test_dialect.py", "tests.oracle.load_answers"),
    "gossipkv.loadtest.generator": Proof("tests/unit/loadtest/test_dialect.py", "tests.oracle.load_answers"),
    "gossipkv.loadtest.http": Proof("tests/unit/loadtest/test_http.py", "tests.oracle.load_http"),
    "gossipkv.loadtest.keys": Proof("tests/unit/loadtest/test_keys.py", "tests.oracle.load_keys"),
    "gossipkv.loadtest.ledger": Proof("tests/unit/loadtest/test_truth_of_versions.py", "tests.oracle.load_truth"),
    "gossipkv.loadtest.records": Proof("tests/unit/loadtest/test_truth_of_versions.py", "tests.oracle.load_truth"),
    "gossipkv.loadtest.redis": Proof("tests/unit/loadtest/test_redis.py", "tests.oracle.load_redis"),
    "gossipkv.loadtest.rpc": Proof("tests/unit/loadtest/test_dialect.py", "tests.oracle.load_answers"),
    "gossipkv.loadtest.schedule": Proof("tests/unit/loadtest/test_schedule.py", "tests.oracle.load_schedule"),
    "gossipkv.loadtest.writes": Proof("tests/unit/loadtest/test_writes.py", "tests.oracle.load_writes"),
    "gossipkv.replication.acks": Proof("tests/unit/replication/replica/test_acks.py", "tests.oracle.acks"),
    "gossipkv.replication.calm": Proof("tests/unit/table/test_calm.py", "tests.oracle.token"),
    "gossipkv.replication.token_keys": Proof(
        "tests/unit/replication/replica/test_token_keys.py", "tests.oracle.siphash"
    ),
    "gossipkv.replication.entry": Proof("tests/unit/replication/test_entry.py", "tests.oracle.entry"),
    "gossipkv.replication.merging": Proof("tests/unit/replication/test_merging.py", "tests.oracle.merging"),
    "gossipkv.replication.feed": Proof("tests/unit/replication/stream/test_feed.py", "tests.oracle.feed"),
    "gossipkv.replication.log_page": Proof("tests/unit/replication/stream/test_log_page.py", "tests.oracle.log_page"),
    "gossipkv.replication.own": Proof("tests/unit/replication/test_own_writes.py", "tests.oracle.own"),
    "gossipkv.replication.expiry": Proof("tests/unit/replication/maintenance/test_expiry.py", "tests.oracle.expiry"),
    "gossipkv.replication.page": Proof("tests/unit/replication/test_page.py", "tests.oracle.page"),
    "gossipkv.replication.record": Proof("tests/unit/replication/replica/test_record.py", "tests.oracle.record"),
    "gossipkv.replication.vector_clock": Proof(
        "tests/unit/replication/replica/test_clock.py", "tests.oracle.vector_clock"
    ),
    "gossipkv.storage.batch": Proof("tests/unit/storage/test_batch.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.checksum": Proof("tests/unit/storage/test_checksum.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.compression": Proof("tests/unit/storage/test_sorted_file.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.format": Proof("tests/unit/storage/test_format.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.index_builder": Proof("tests/unit/storage/test_index_builder.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.mapped_file": Proof("tests/unit/storage/test_sorted_file_life.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.page_writer": Proof("tests/unit/storage/test_builder.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.pager": Proof("tests/unit/serving/test_cold_reads_slow.py", "tests.oracle.scan"),
    "gossipkv.storage.radix": Proof("tests/unit/storage/test_record_sorter.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.record_sorter": Proof("tests/unit/storage/test_record_sorter.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.records": Proof("tests/unit/storage/test_sorted_file.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.runs": Proof("tests/unit/storage/test_runs.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.scan": Proof("tests/unit/storage/test_sorted_file.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.scratch": Proof("tests/unit/storage/test_record_sorter.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.sigbus": Proof("tests/unit/storage/test_sigbus.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.sorted_file": Proof("tests/unit/storage/test_sorted_file.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.sorted_file_writer": Proof("tests/unit/storage/test_builder.py", "tests.oracle.sorted_file"),
    "gossipkv.storage.engine.committer": Proof("tests/unit/storage/engine/test_committer.py", "tests.oracle.log"),
    "gossipkv.storage.engine.gate": Proof("tests/unit/storage/engine/test_gate.py", "tests.oracle.view"),
    "gossipkv.storage.engine.log": Proof("tests/unit/storage/engine/test_log.py", "tests.oracle.log"),
    "gossipkv.storage.engine.memtable": Proof("tests/unit/storage/engine/test_memtable.py", "tests.oracle.memtable"),
    "gossipkv.storage.engine.merge": Proof("tests/unit/storage/engine/test_merge.py", "tests.oracle.merge"),
    "gossipkv.storage.engine.merged_scan": Proof("tests/unit/storage/engine/test_view.py", "tests.oracle.view"),
    "gossipkv.storage.engine.view": Proof("tests/unit/storage/engine/test_view.py", "tests.oracle.view"),
    "gossipkv.storage.engine.writer": Proof("tests/unit/storage/engine/test_golden_store.py", "tests.oracle.log"),
    "gossipkv.wire.frames": Proof("tests/unit/wire/test_frames.py", "tests.oracle.msgpack_scanner"),
    "gossipkv.wire.message": Proof("tests/unit/wire/test_message.py", "tests.oracle.messagepack"),
}


def includes(path: Path) -> list[Path]:
    return [
        path.parent / name for name in re.findall(r'^include "(.+)"$', path.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def extensions(root: Path) -> dict[str, Path]:
    """Return every extension of the tree, by its dotted name."""
    return {Source(root, path).module: path for path in sorted((root / "src_ext").rglob("_*.pyx"))}


def check_parts(root: Path) -> list[str]:
    found = [*(root / "src_ext").rglob("*.pyx"), *(root / "src_ext").rglob("*.pxd")]
    included = [part for path in found for part in includes(path)]
    parts = sorted(path for path in found if not path.name.startswith("_"))
    return [
        f"{Source(root, path).where}: included {count} times, a part is once"
        for path in parts
        if (count := included.count(path)) != 1
    ]


def check_names(root: Path) -> list[str]:
    """Report constants that an extension has twice: its parts share a namespace, and in Cython the last value wins."""
    wrong = []
    for name, path in extensions(root).items():
        files = [file for file in (path, path.with_suffix(".pxd")) if file.exists()]
        files += [part for file in files for part in includes(file)]
        text = "\n".join(re.sub(r"#.*", "", file.read_text(encoding="utf-8")) for file in files)
        defined = re.findall(r"^    ([A-Z][A-Z0-9_]+) = ", text, re.MULTILINE)
        imported = set(re.findall(r"\w+", " ".join(re.findall(r" cimport ?(\([^)]*\)|.*)", text))))
        wrong += [
            f"{name}: {constant} is defined twice, or also cimported; rename one"
            for constant in sorted(set(defined))
            if defined.count(constant) > 1 or constant in imported
        ]
    return wrong


def check_stubs(root: Path) -> list[str]:
    """Report extensions without a stub beside their package, and stubs without an extension."""
    found = extensions(root)
    stubs = {Source(root, path).module for below in ("gossipkv", "tests") for path in (root / below).rglob("_*.pyi")}
    wrong = [f"{name}: no stub {name.replace('.', '/')}.pyi" for name in sorted(found.keys() - stubs)]
    return wrong + [f"{name}: a stub without an extension" for name in sorted(stubs - found.keys())]


def check_proofs(root: Path, proofs: dict[str, Proof]) -> list[str]:
    """Report files of extensions without a proof in the table, and lines of the table that do not hold."""
    found = {Source(root, path).module for path in (root / "src_ext").rglob("*.pyx") if not includes(path)}
    wrong = [f"{name}: no line in the table of proofs" for name in sorted(found - proofs.keys())]
    wrong += [f"{name}: in the table of proofs, but no extension" for name in sorted(proofs.keys() - found)]
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
