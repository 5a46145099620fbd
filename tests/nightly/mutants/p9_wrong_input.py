"""Bugs that accept wrong input, or let it harm other clients (P9)."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

MUTANTS: tuple[Mutant, ...] = (
    planted(
        "both lengths of a body are taken",
        "gossipkv.http.exchange:HttpExchange._read_head",
        'if b"content-length" in headers and b"transfer-encoding" in headers:',
        "if False:",
        "tests/unit/http/test_exchange.py",
    ),
    planted(
        "a folded header is taken",
        "gossipkv.http.exchange:HttpExchange._judge_head",
        "if _FOLD.search(head) is not None:",
        "if False:",
        "tests/unit/http/test_exchange.py",
    ),
    planted(
        "a value of a header may have any byte",
        "gossipkv.serving.http._requests:read_field",
        "if has_control(begin, stop):",
        "if False:",
        "tests/unit/serving/test_http_slow.py",
    ),
    planted(
        "a client may select one database more than there are",
        "gossipkv.serving.resp._commands:take_word_of_connection",
        "elif not 0 <= number <= core.resp_name_count:",
        "elif not 0 <= number <= core.resp_name_count + 1:",
        "tests/unit/serving/test_resp.py",
    ),
    planted(
        "records of other partitions are believed",
        "gossipkv.serving.scan._merge:read_records",
        "if not is_of(&home, &key):",
        "if False:",
        "tests/unit/serving/test_scan_merge.py",
    ),
    planted(
        "a page of another version is believed",
        "gossipkv.serving.scan:read_answer",
        "case [cursor, version.name]:",
        "case [cursor, str()]:",
        "tests/unit/serving/test_scan_elsewhere.py",
    ),
    planted(
        "a snapshot is believed without its digest",
        "gossipkv.register.snapshot:SnapshotReader.finish",
        "if found != digest:",
        "if False:",
        "tests/unit/register/metadata/test_server.py::test_false_news_of_a_map_change_nothing",
    ),
    planted(
        "a time that is far ahead is taken",
        "gossipkv.replication.replica.smeared:sift",
        "is_lately = -most_ahead_ms <= now_ms - ms_of(write.time) <= LATEST_MS",
        "is_lately = now_ms - ms_of(write.time) <= LATEST_MS",
        "tests/unit/table/controllers/test_smear_buffer.py",
    ),
    planted(
        "a child begins beyond its parent's end",
        "gossipkv.register.metadata.partitions:_fault_of_children",
        "bounds = firsts if after is None else [*firsts, after]",
        "bounds = firsts",
        "tests/unit/register/metadata/test_dividing.py",
    ),
    planted(
        "a deletion without bounds is let through",
        "gossipkv.table.records.range_deletion:RangeDeletions.delete_range",
        "if not keys.first and keys.end is None:",
        "if False:",
        "tests/unit/table/records/test_range_deletion.py",
    ),
    planted(
        "an answer that a defect cut off looks whole",
        "gossipkv.http.connection:Connection._next",
        "raise trio.BrokenResourceError from error",
        "return None",
        "tests/unit/http/test_gateway.py",
    ),
    planted(
        "an answer is said before its turn",
        "gossipkv.serving.connection._reply_queue:write_answers",
        "if id == 0 and reply.parts == 1:",
        "if reply.parts == 1:",
        "tests/unit/serving/test_resp_forwarding.py",
    ),
    planted(
        "a command of RESP takes as few words as there are",
        "gossipkv.serving.resp:_check_count",
        "if count != listed.words if listed.words > 0 else count < -listed.words or len(words) % (listed.step or 1):",
        "if False:",
        "tests/unit/serving/test_resp_commands.py",
    ),
)
