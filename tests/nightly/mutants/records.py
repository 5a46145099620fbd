"""Mutants of the methods on records of tables: where reads and writes go, and what a page of a scan has."""

from __future__ import annotations

from tests.nightly.mutants.mutant import planted

READS = ("tests/unit/table/test_reads.py",)
WRITES = ("tests/unit/table/test_writes.py",)
SCANS = ("tests/unit/table/test_scans.py",)
HOLDING = ("tests/unit/table/test_holding.py",)
ROUTING = ("tests/unit/table/test_routing.py",)

FORWARDING = "gossipkv.table.forwarding"
PAGE = "gossipkv.table.scans:TableScans.page"

MUTANTS_OF_RECORDS = (
    planted(
        "a put is hedged",
        f"{FORWARDING}:Forwarding._go_on",
        "may_ask = not is_late and not (request.is_write and request.asked)",
        "may_ask = not is_late",
        *WRITES,
    ),
    planted(
        "a write is repeated after it was sent",
        f"{FORWARDING}:_may_go_on",
        "return isinstance(error, REFUSED) or not (request.is_write or isinstance(error, RequestError))",
        "return not isinstance(error, RequestError)",
        *WRITES,
    ),
    planted(
        "a write that was refused goes nowhere else",
        f"{FORWARDING}:_may_go_on",
        "return isinstance(error, REFUSED) or not (request.is_write or isinstance(error, RequestError))",
        "return not request.is_write",
        *WRITES,
    ),
    planted(
        "a silent host of a write is no matter",
        f"{FORWARDING}:Forwarding._fail",
        "if request.is_write and request.asked:",
        "if False:",
        *WRITES,
    ),
    planted(
        "a read waits for who is slow",
        f"{FORWARDING}:Forwarding._go_on",
        "until = min(until, now + self._stage_s)",
        "pass",
        *READS,
    ),
    planted(
        "who will hold a partition soon is asked once",
        f"{FORWARDING}:Forwarding._go_on",
        "do = self.begin",
        "do = self._fail",
        *WRITES,
    ),
    planted(
        "a copy that is not available answers",
        f"{FORWARDING}:serving",
        "if host.assignment == copy.assignment and host.available:",
        "if host.assignment == copy.assignment:",
        *WRITES,
    ),
    planted(
        "the level is not looked at before",
        "gossipkv.table.writes:Writes._originate",
        "_check_level(replicas, copy, level)",
        "pass",
        *WRITES,
    ),
    planted(
        "who is connected and has told nothing is not waited for",
        "gossipkv.table.writes:_check_level",
        "raise (NotReady if levels.connected(linked) >= needed else Unavailable)(words, {**details})",
        "raise Unavailable(words, {**details})",
        *WRITES,
    ),
    planted(
        "a write is answered in time, and when it is confirmed",
        "gossipkv.table.writes:Writes._originate",
        "if waiter.on_late is not None:",
        "if True:",
        *WRITES,
    ),
    planted(
        "a put_many of which a part is refused was not applied",
        "gossipkv.table.writes:_Together.begun",
        "elif self._batches == 1 or (unknown is None and not done):",
        "elif self._batches == 1 or unknown is None:",
        *WRITES,
    ),
    planted(
        "a put_many is one batch",
        "gossipkv.table.writes:_batches",
        "if batch.size_bytes >= BATCH_BYTES:",
        "if False:",
        *WRITES,
    ),
    planted(
        "what is damaged here is damaged everywhere",
        "gossipkv.table.reads:TableReads.get",
        "except (NotServed, NotReady, Unavailable, Corrupt):",
        "except (NotServed, NotReady):",
        *READS,
    ),
    planted(
        "a tombstone is a row of a page",
        PAGE,
        "if record.value(data) is None:",
        "if False:",
        *SCANS,
    ),
    planted(
        "tombstones of a page are not counted",
        PAGE,
        "tombstones += 1",
        "pass",
        *SCANS,
    ),
    planted(
        "every shard is asked for the whole page",
        "gossipkv.table.scans:share",
        "return min(limit, expected + 2 * isqrt(expected) + 2)",
        "return limit",
        *SCANS,
    ),
    planted(
        "a page goes as far as one of its parts",
        "gossipkv.table.scans:joined",
        "bound = (max(bounds) if wanted.reverse else min(bounds)) if bounds else None",
        "bound = (min(bounds) if wanted.reverse else max(bounds)) if bounds else None",
        *SCANS,
    ),
    planted(
        "a page goes on in another table of the name",
        "gossipkv.table.scans:_Scanning.go_on",
        "if self._id not in {None, table}:",
        "if False:",
        *SCANS,
    ),
    planted(
        "the last range of a leaf has no end",
        "gossipkv.table.route:Route._leaf",
        "end = leaves[at + 1].first if at + 1 < len(leaves) else None",
        "end = None",
        *ROUTING,
    ),
    planted(
        "a copy goes with its table's name",
        "gossipkv.table.holding:Holding._let_go",
        "for copy in [copy for (table, _), copy in replicas.copies.items() if table not in known]:",
        "known = {one.id for one in self._catalogue.tables().values()}\n"
        "            for copy in [copy for (table, _), copy in replicas.copies.items() if table not in known]:",
        *HOLDING,
    ),
    planted(
        "copies that were left stay",
        "gossipkv.table.holding:Holding.__init__",
        "self._may_be_left = True  # Copies of tables that have ended; at a start, of one that ended as the node did.",
        "self._may_be_left = False",
        *HOLDING,
    ),
)
