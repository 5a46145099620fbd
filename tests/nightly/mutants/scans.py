"""Mutants of scans whose partitions are on several nodes: what is believed, who is asked, which version it is."""

from __future__ import annotations

from tests.nightly.mutants.mutant import planted

ELSEWHERE = "gossipkv.serving.scan_elsewhere"
GATHERED = "tests/unit/serving/test_scan_elsewhere.py"


MUTANTS_OF_SCANS = (
    planted(
        "a cursor does not pin its version",
        "gossipkv.serving.reads:Reads._version_to_scan",
        "return self._database(plan.database).go_on(pinned)",
        "return self._choose(plan.database, options)",
        GATHERED,
    ),
    planted(
        "a cursor does not pin the version of a scan that is answered here",
        "gossipkv.serving._scan_plan:make_plan",
        "options.has_version = True",
        "options.has_version = False",
        "tests/unit/serving/test_scans.py",
    ),
    planted(
        "records of other partitions are believed",
        "gossipkv.serving._scan_merge:read_records",
        "if not is_of(&home, &key):",
        "if False:",
        "tests/unit/serving/test_scan_merge.py",
    ),
    planted(
        "what lies behind an owner's last record is skipped",
        "gossipkv.serving._scan_merge:first_of",
        "if heads[i].more:",
        "if False:",
        "tests/unit/serving/test_scan_merge.py",
    ),
    planted(
        "a cursor that is not behind the last record is believed",
        "gossipkv.serving.scan_merge:read_answer",
        "return Run(packed, len(_HEAD), more=_is_behind(cursor, version.name, last))",
        "return Run(packed, len(_HEAD), more=cursor is not None)",
        GATHERED,
    ),
    planted(
        "a page of another version is believed",
        "gossipkv.serving.scan_merge:read_answer",
        "case [cursor, version.name]:",
        "case [cursor, str()]:",
        GATHERED,
    ),
    planted(
        "a silent owner is waited for",
        f"{ELSEWHERE}:_Gathering._is_due",
        "return not part.is_pending or (part.outcome == ASKED and part.due_s <= now_s)",
        "return not part.is_pending",
        GATHERED,
    ),
    planted(
        "a first page is never planned anew",
        f"{ELSEWHERE}:_Gathering._begin_round",
        "self._is_outdated = (before.name, before.wire_id, before.files) != (now.name, now.wire_id, now.files)",
        "assert before is not now or self._rounds",
        GATHERED,
    ),
    planted(
        "a scan is forwarded again",
        "gossipkv.serving.reads:Reads._scan",
        'asks = None if is_forwarded or options.flag("local") or version.wire_id is None else self._elsewhere',
        'asks = None if options.flag("local") or version.wire_id is None else self._elsewhere',
        GATHERED,
    ),
)
