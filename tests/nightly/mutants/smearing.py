"""Bugs planted in insert smearing: what is kept, when it is answered, and under which time it comes to hosts."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted_at

UNIT = "tests/unit"
ACCEPTING = f"{UNIT}/table/test_accepting.py"
COLLECTING = f"{UNIT}/replication/test_collecting.py"
SMEARING = f"{UNIT}/table/test_smearing.py"

IN_ACCEPTING = "gossipkv.table.accepting:Accepting"
IN_SIFT = "gossipkv.replication.accepted:sift"
IN_SMEARING = "gossipkv.table.smearing:Smearing"
IN_WRITES = "gossipkv.table.writes"

TOLD = 'is_told = given.text("level") is not None or given.blob("token") is not None'
LATELY = "is_lately = -most_ahead_ms <= now_ms - ms_of(write.time) <= LATEST_MS"

MUTANTS_OF_SMEARING: tuple[Mutant, ...] = (
    *planted_at(
        ACCEPTING,
        ("smeared before its sync", f"{IN_ACCEPTING}.accept",
         "replication.append_told(batch, told)",
         "told(None if replication.append_told(batch, lambda _: None) else None)"),
        ("replayed under a new time", IN_SIFT,
         "one = write if is_lately else write._replace(time=0)",
         "one = write._replace(time=0)"),
        ("smeared although a token came", f"{IN_WRITES}:may_wait",
         TOLD,
         'is_told = given.text("level") is not None'),
        ("smeared although an empty token came", f"{IN_WRITES}:may_wait",
         TOLD,
         'is_told = given.text("level") is not None or bool(given.blob("token"))'),
        ("what was accepted wins over what came later", IN_SIFT,
         'if one.time and order is not None and one.time <= int.from_bytes(order[:TIME_BYTES], "big"):',
         "if False and order is not None:"),
        ("what comes half an hour late has its old time", IN_SIFT,
         LATELY,
         "is_lately = -most_ahead_ms <= now_ms - ms_of(write.time)"),
        ("a time that is far ahead is taken", IN_SIFT,
         LATELY,
         "is_lately = now_ms - ms_of(write.time) <= LATEST_MS"),
        ("a host does not merge accepted times", "gossipkv.replication.copy:Copy.originate",
         "self.time.merge(time)",
         "pass"),
    ),
    *planted_at(
        COLLECTING,
        ("tombstones go before what was smeared has come", "gossipkv.replication.collecting:Collecting._is_old",
         "return not copy.rules.smears or self._outside.now_ms() - ms_of(time) >= KEEPS_MS",
         "return bool(time) or not copy.rules.smears or bool(KEEPS_MS + ms_of(0))"),
    ),
    *planted_at(
        ACCEPTING,
        ("deleted before its answer", f"{IN_ACCEPTING}.look",
         "self._forward(table, puts, self._forwarded)",
         "self._forward(table, puts, lambda some, _: self._forwarded(some, None))"),
        ("what waits for a table that is not known is dropped", "gossipkv.table.routing:Routing.route_of",
         "if self._deciding.has_ended(table):",
         "if True:"),
    ),
    *planted_at(
        SMEARING,
        ("what is readable late is not forwarded in this life", f"{IN_SMEARING}.is_there",
         "self._cursor = min(self._cursor, put.at)",
         "pass"),
        ("the clock of rows is the time of day", f"{IN_SMEARING}.begin",
         "least_ms = 0 if last is None else _due_of(last) - MOST_WAIT_MS",
         "least_ms = 0 if last is None else 0 * _due_of(last) - MOST_WAIT_MS"),
    ),
    *planted_at(
        ACCEPTING,
        ("another store forwards what waits", f"{IN_ACCEPTING}._begin",
         "if replication.get(space, SMEARED) != self._store:",
         "if replication.get(space, SMEARED) is None:"),
    ),
)  # fmt: skip
